"""What stands for functions of another language."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Named:
    """Stands in a job for a function of another language, which a worker of that language puts in by name."""

    name: str

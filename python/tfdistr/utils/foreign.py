"""A placeholder for functions of another language."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Named:
    """The placeholder in a job. A worker of the other language replaces it by the function of this name."""

    name: str

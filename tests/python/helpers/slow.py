"""What of a test only `make test-all` runs."""

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mostly_slow(values: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Mark all parameters but ``quick`` as slow: a comment above says why. Tuples are several arguments."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if value in quick else pytest.mark.slow,
        )
        for value in values
    ]  # fmt: skip


def few_or_many(few: int, many: int) -> int:
    """How many values are drawn: a few in `make test`, and many with the slow tests."""
    return many if os.environ.get("SLOW") else few

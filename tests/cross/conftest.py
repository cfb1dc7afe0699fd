"""A process with R and Python, for the rows of all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from both_process import Both


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    process = Both()
    yield process
    process.end()

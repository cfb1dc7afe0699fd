"""A process with R and Python, for the rows of all tests of this folder."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "python" / "helpers"))
from both_process import Both


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    process = Both()
    yield process
    process.end()

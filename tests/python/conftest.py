"""Fixtures of several tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters import Processes


@pytest.fixture
def processes() -> Iterator[Processes]:
    """What starts processes, which are ended with the test."""
    with Processes() as started:
        yield started

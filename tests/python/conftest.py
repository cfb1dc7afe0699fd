"""Fixtures of several tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from clusters import Processes

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So start shells what they run in the background, and all that this starts inherits it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def processes() -> Iterator[Processes]:
    """What starts processes, which are ended with the test."""
    with Processes() as started:
        yield started

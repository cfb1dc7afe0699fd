"""What a display in R gets of the events of a job."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tfdistr.r.session import events_for_r


def test_only_the_kinds_that_it_shows():
    shown: list[Any] = []
    pass_on = events_for_r(shown.append, ["warning", "note"])
    for kind in ("warning", "batch", "note", "epoch_end"):
        pass_on({"event": kind})
    assert [event["event"] for event in shown] == ["warning", "note"]


def test_an_interrupt_waits_until_it_is_shown():
    shown: list[Any] = []

    def show(event: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        shown.append(event)

    with pytest.raises(KeyboardInterrupt):
        events_for_r(show, ["note"])({"event": "note"})
    assert shown

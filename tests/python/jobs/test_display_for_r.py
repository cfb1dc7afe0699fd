"""The display of a job by functions of R."""

import math
import os
import signal
from typing import Any

import pytest

from tfdistr.jobs.display import display_for_r

EVENTS: list[dict[str, Any]] = [
    {"event": "started", "worker": 1},
    {"event": "started", "worker": 0},
    {"event": "train_begin", "worker": 0, "epochs": 2, "steps": 4},
    {"event": "epoch_begin", "worker": 0, "epoch": 0},
    {"event": "batch", "worker": 0, "step": 2, "steps": 4, "metrics": {"loss": math.nan}},
    {"event": "warning", "worker": 1, "message": "x=True"},
    {"event": "warning", "worker": 0, "message": "x=True"},
    {"event": "warning", "worker": 1, "message": "y=True", "of_user": True, "category": "batch_loss"},
    {"event": "note", "worker": 1, "message": "see z=None"},
    {"event": "epoch_end", "worker": 0, "epoch": 0, "metrics": {"loss": -math.inf}, "seconds": 2},
]


def called(verbose: Any, *, bar: bool = True, interactive: bool = False) -> list[tuple[Any, ...]]:
    """The calls of functions of R that the events lead to."""
    calls: list[tuple[Any, ...]] = []

    def function(name: str) -> Any:
        return lambda *arguments: calls.append((name, *arguments))

    drawn = {name: function(name) for name in ("begin", "update", "done")} if bar else None
    display = display_for_r(verbose, function("line"), function("warn"), drawn, interactive=interactive)
    for event in EVENTS:
        display.event(event)
    display.close()
    return calls


SAID = [("warn", "x = TRUE", None, None), ("warn", "y=True", 1, "batch_loss"), ("line", "see z = NULL")]
EPOCH = ("line", "Epoch 1/2  2.0 s  loss: -Inf")


def test_a_bar():
    done = ("done",)
    assert called(1) == called("auto", interactive=True) == [
        ("begin", "Starting the workers", None), ("begin", "Epoch 1/2", 4), ("update", 2, "loss: NaN"),
        done, SAID[0], done, SAID[1], SAID[2], EPOCH, done,
    ]  # fmt: skip


def test_lines():
    assert called(1, bar=False) == called(2, bar=False) == called("auto", bar=False) == [*SAID, EPOCH]
    assert called(0, bar=False) == SAID


def test_an_interrupt_waits_until_it_is_shown():
    shown: list[Any] = []

    def show(text: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        shown.append(text)

    display = display_for_r(0, show, print, None, interactive=False)
    with pytest.raises(KeyboardInterrupt):
        display.event({"event": "note", "message": "first"})
    assert shown == ["first"]

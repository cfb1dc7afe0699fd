"""The types of events; `tfdistr.supervision.events` describes the fields of each kind."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class Progress(TypedDict, total=False):
    """The fields that tell how far a training is."""

    epochs: int
    steps: int | None
    examples: int | None
    epoch: int
    step: int
    metrics: Mapping[str, float | list[float]]
    seconds: float
    times: dict[str, float]
    global_step: int
    local_steps: Sequence[int]
    dropped: Sequence[int]
    not_computed: int


class Text(TypedDict, total=False):
    """The fields with words for the user."""

    message: str
    fix: str
    of_user: bool
    category: str | None
    error_type: str
    traceback: str | None
    language: str
    peer: bool
    line: str
    reason: str


class Event(Progress, Text, total=False):
    """An event of a worker, or of the launcher. Each kind has some of the fields."""

    event: str
    time: float
    clock: object
    worker: int | None
    pid: int
    host: str


def event_now(kind: str, worker: int | None = None, **fields: Any) -> Event:
    """Make an event of this moment, of the launcher or of a job in this process."""
    event: Event = {"event": kind, "worker": worker, "time": time.time(), **fields}  # type: ignore[typeddict-item]
    return event

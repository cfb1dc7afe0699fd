"""The times of a training: where the seconds of a worker went.

The worker that trains measures them itself, on the thread of its training loop:

* start: from the call, or from the start of the worker's process, until the first step is done. It includes
  the rendezvous, the tracing of the step, and the restored checkpoint of a run that resumes.
* waiting_for_peers: in collectives, until the last worker had come.
* exchanging: in collectives, after that.
* waiting_for_data: until the next batch was there. If this thread gathers it from arrays, that counts.
* checkpoints, callbacks: in the checkpoint manager and in Keras callbacks, without their collectives.
* computing: the rest.

A part that cannot be measured is left out, and its time is in another part:

* With the ring, nobody knows when the last worker has come: ``exchanging`` includes ``waiting_for_peers``.
* Between GPUs, and between several devices of one process, TensorFlow exchanges within ``computing``.
* Keras's own loop, which trains on several devices and models with a ``fit()`` of their own, reads its data
  within ``computing``.
* The chief of parameter servers, and the client of ``model_parallel``, measure themselves: the work of the
  other processes is in ``computing``.

On a GPU the loop runs ahead of the device. There ``waiting_for_data`` is an upper bound: the device may still
compute meanwhile. The times are those of the last start, if workers were restarted or if a run was resumed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdistr.collectives.interface import Collectives

#: The parts, in the order in which they are shown.
PARTS = (
    "computing", "waiting_for_peers", "exchanging", "waiting_for_data", "checkpoints", "callbacks", "start",
)  # fmt: skip
#: The parts that the training loop itself measures.
_MEASURED = ("waiting_for_data", "checkpoints", "callbacks")


class _Process:
    """The call that this process is in."""

    called: float | None = None


def note_call() -> None:
    """Record that a call has begun: the next training counts its start from here."""
    _Process.called = time.monotonic()


class StepTimes:
    """The times of one training on this worker. ``start`` runs until the first ``step_done()``.

    Example:
        >>> times = StepTimes()
        >>> with times.measure("callbacks"):
        ...     call_callbacks()
        >>> times.finish()["callbacks"]
        0.25
    """

    def __init__(self, collectives: Collectives | None = None, unknown: Collection[str] = ()) -> None:
        now = time.monotonic()
        self._began = now if _Process.called is None else _Process.called
        _Process.called = None
        self._collectives, self._unknown = collectives, set(unknown)
        self._first: float | None = None
        self._parts = dict.fromkeys(_MEASURED, 0.0)
        self._before = self._exchanged()

    def add(self, part: str, seconds: float) -> None:
        """Add seconds to "waiting_for_data", "checkpoints" or "callbacks"."""
        self._parts[part] += max(0.0, seconds)

    @contextlib.contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Measure a part within the context, without collectives and other parts in it."""
        began, before = time.monotonic(), self._assigned()
        try:
            yield
        finally:
            self.add(part, time.monotonic() - began - (self._assigned() - before))

    def step_done(self) -> None:
        """Record that a step of the training is done: the first one ends the start."""
        if self._first is not None:
            return
        self._first = time.monotonic()
        self._parts = dict.fromkeys(_MEASURED, 0.0)
        self._before = self._exchanged()
        if self._collectives is not None:
            self._collectives.begin_waits()

    def finish(self) -> dict[str, float]:
        """Return the seconds of each part that is known. All workers call this after their last step."""
        now = time.monotonic()
        exchanged, waited = self._exchanged() - self._before, 0.0
        unknown = set(self._unknown)
        if self._collectives is not None:
            found = self._collectives.waited()
            if found is None:
                unknown.add("waiting_for_peers")
            if self._collectives.seconds is None:
                unknown.add("exchanging")
            waited = min(found or 0.0, exchanged)
        start = (now if self._first is None else self._first) - self._began
        if self._first is None:  # no step was made: the start has everything
            self._parts, exchanged, waited = dict.fromkeys(_MEASURED, 0.0), 0.0, 0.0
        seconds = {
            **self._parts, "waiting_for_peers": waited, "exchanging": exchanged - waited, "start": start,
        }  # fmt: skip
        seconds["computing"] = max(0.0, now - self._began - sum(seconds.values()))
        return {part: seconds[part] for part in PARTS if part not in unknown}

    def _exchanged(self) -> float:
        return (self._collectives.seconds if self._collectives is not None else None) or 0.0

    def _assigned(self) -> float:
        """Return the seconds that some part already has."""
        return sum(self._parts.values()) + self._exchanged()

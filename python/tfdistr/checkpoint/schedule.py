"""The steps after which a checkpoint is due, or workers ask each other whether one was preempted."""

from __future__ import annotations

import math
import time

#: Seconds between two checks of all workers whether one of them was preempted.
ASK_SECONDS = 1.0


class Schedule:
    """The schedule of the checkpoints of one training. It is the same on all workers.

    Attributes:
        every: How often a checkpoint is written: a number of steps, or "epoch".
        total: Number of steps before this epoch.
        pace: Number of steps until the next check; all workers must have the same.
    """

    def __init__(self, every: int | str, total: int, done: int) -> None:
        self.every, self.total, self.pace = every, total, 1
        self._saved = total + done  # number of steps over all epochs at the last checkpoint
        self._execution = 1
        self._next = 0
        self._asked_step, self._asked_time = 0, time.monotonic()

    def begin_after(self, steps: int) -> None:
        """Record the number of steps before the first epoch of a new training."""
        self.total = self._saved = steps

    def begin_epoch(self, done: int, execution: int) -> None:
        """Record the start of an epoch of which ``done`` steps are already done."""
        self._execution = execution
        self.plan(done)

    def until(self, done: int) -> int:
        """Return the number of steps until the next check."""
        return max(1, self._next - done)

    def is_next(self, done: int) -> bool:
        """Return whether the next check is after ``done`` steps of this epoch."""
        return done >= self._next

    def is_due(self, done: int) -> bool:
        """Return whether a checkpoint is due after ``done`` steps of this epoch."""
        return self._due() <= done

    def note_saved(self, done: int) -> None:
        """Record a checkpoint after ``done`` steps of this epoch."""
        self._saved = self.total + done

    def own_pace(self, done: int) -> int:
        """Return the number of steps that this worker would make until the next check."""
        made, seconds = done - self._asked_step, time.monotonic() - self._asked_time
        return min(max(1, 2 * made), max(1, int(made * ASK_SECONDS / max(seconds, 1e-9))))

    def plan(self, done: int) -> None:
        """Plan the next check."""
        self._asked_step, self._asked_time = done, time.monotonic()
        following = min(done + self.pace, self._due())
        self._next = math.ceil(following / self._execution) * self._execution

    def _due(self) -> float:
        """Return the step of this epoch after which a checkpoint is due."""
        if not isinstance(self.every, int):
            return math.inf
        return (self._saved // self.every + 1) * self.every - self.total

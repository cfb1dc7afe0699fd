"""Counts the steps of the workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras


class Report(keras.callbacks.Callback):  # type: ignore[misc]
    """The steps of the workers. It is a callback because checkpoints have the numbers of callbacks.

    Args:
        workers: Number of workers.

    Attributes:
        global_step: Number of updates of the weights.
        local_steps: By index of the worker: how often its gradient was part of an update.
        dropped: By index of the worker: number of gradients that came too late.
        not_computed: Number of shares that no worker had begun when their step was made.
    """

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.global_step = 0
        self.local_steps = [0] * workers
        self.dropped = [0] * workers
        self.not_computed = 0

    def numbers(self) -> dict[str, Any]:
        """The fields of the event "worker_steps"."""
        return {
            "global_step": self.global_step,
            "local_steps": list(self.local_steps),
            "dropped": list(self.dropped),
            "not_computed": self.not_computed,
        }


class StepsReporter(keras.callbacks.Callback):  # type: ignore[misc]
    """Reports the steps of the workers after each epoch, and at the end.

    Args:
        tell: Reports, if the last report is older than a number of seconds.
    """

    remembers = False  # a checkpoint does not store it

    def __init__(self, tell: Callable[[float], None]) -> None:
        super().__init__()
        self._tell = tell

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._tell(0.0)

    def on_train_end(self, logs: Any = None) -> None:
        self._tell(0.0)

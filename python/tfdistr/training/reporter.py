"""The events of training, and a warning about workers that mostly wait for each other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras

from tfdistr.collectives.interface import Collectives
from tfdistr.data.pipeline.worker_data import WorkerData
from tfdistr.strategies.exact.step_logs import flat_logs
from tfdistr.training.in_session import AtEpochEnd
from tfdistr.training.job import Job
from tfdistr.utils.metric_values import numbered, plain_value
from tfdistr.utils.warn import NOTE

#: Seconds between two reports of a step's metrics. To read the metrics, Python must wait for the step.
REPORT_INTERVAL = 0.25

#: Called as ``on_event(kind, **fields)``.
OnEvent = Callable[..., None]


class Reporter(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that reports the progress of training. The job shows the chief's metrics.

    Args:
        at_end: What this process does at the end of an epoch, after its report; see ``in_session.py``.
    """

    remembers = False  # a checkpoint does not store it

    def __init__(self, on_event: OnEvent, *, chief: bool, at_end: AtEpochEnd | None = None) -> None:
        super().__init__()
        self._on_event = on_event
        self._steps: int | None = None
        self._chief = chief
        self._at_end = at_end
        self._epoch = 0
        self._epoch_began = self._reported = 0.0

    def begin(self, job: Job, data: WorkerData) -> None:
        """Report that the training begins, with this data."""
        self._steps = data.steps
        examples = examples_of_epoch(job, data)
        self._on_event("train_begin", epochs=job.epochs, steps=data.steps, examples=examples)

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self._epoch, self._epoch_began = epoch, time.monotonic()
        self._on_event("epoch_begin", epoch=epoch)

    def on_steps(self, done: int, logs: object) -> None:
        """Report that ``done`` steps of the epoch are done."""
        now = time.monotonic()
        if not self._chief or now - self._reported < REPORT_INTERVAL:
            return
        self._reported = now
        self._on_event("batch", epoch=self._epoch, step=done, steps=self._steps, metrics=_numbers(logs))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        seconds = time.monotonic() - self._epoch_began
        self._on_event("epoch_end", epoch=epoch, metrics=_numbers(logs), seconds=seconds)
        if self._at_end is not None and self._at_end(epoch, _plain(logs or {})):
            self.model.stop_training = True


def _numbers(logs: object) -> dict[str, float]:
    """Return the metrics as numbers. A metric with several values becomes ``f1_score[0]`` and so on."""
    numbers: dict[str, float] = {}
    for name, value in flat_logs(logs or {}).items():
        numbers |= numbered(name, value)
    return numbers


def history_of(history: dict[str, list[object]]) -> dict[str, list[object]]:
    """Return Keras's history with plain numbers; a metric with several values has a list of them."""
    collected: dict[str, list[object]] = {}
    for name, values in history.items():
        for value in values:
            for label, part in _plain({name: value}).items():
                collected.setdefault(label, []).append(part)
    return collected


def _plain(logs: Mapping[str, object]) -> dict[str, Any]:
    return {label: plain_value(part) for label, part in flat_logs(dict(logs)).items()}


def examples_of_epoch(job: Job, data: WorkerData) -> int | None:
    """Return the number of examples of an epoch, over all workers; None if it is not known."""
    if data.steps is None or job.batch_size is None:
        return None
    if data.arrays is not None:
        return sum(map(data.arrays.rows, range(data.steps)))
    return data.steps * job.batch_size


log = logging.getLogger("tfdistr")

#: Seconds of training below which nothing is logged: one-time work takes most of a short training.
LEAST_SECONDS = 10.0


def warn_if_slower_than_one(times: Mapping[str, float], collectives: Collectives | None) -> None:
    """Log, at the end of a training, if one worker would have been as fast.

    While a worker waits or exchanges, its core computes nothing for the training. So N workers that compute
    for less than 1/N of the time are no faster than one of them.
    """
    seconds = sum(times.values()) - times["start"]
    if collectives is None or "exchanging" not in times or seconds < LEAST_SECONDS:
        return
    waited = (times["exchanging"] + times.get("waiting_for_peers", 0.0)) / seconds
    workers = collectives.num_workers
    if collectives.share_a_host and workers * (1 - waited) < 1:
        log.warning(
            "The %d workers spent %.0f %% of the time exchanging gradients and waiting for each other. "
            "One worker with all cores, local_cluster(1), would be faster. With larger batches, workers "
            "exchange less often.",
            workers, 100 * waited, extra=NOTE,
        )  # fmt: skip

"""Training by the ``fit`` of a model, Keras's or the model's own, with checkpoints after epochs.

A callback is called for the epochs. So the user's ``fit`` can resume from a checkpoint if it passes
``initial_epoch`` and ``callbacks`` to Keras's ``fit``, or handles them as Keras does.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import keras

from tfdistr import tf_internals
from tfdistr.checkpoint.manager import CheckpointManager
from tfdistr.data.pipeline.worker_data import WorkerData
from tfdistr.errors import ArgumentError
from tfdistr.strategies.build import build
from tfdistr.training.epochs import OnSteps
from tfdistr.training.job import EpochRange
from tfdistr.training.step_blocks import extended_of
from tfdistr.training.step_times import StepTimes
from tfdistr.training.watchdog import progress

log = logging.getLogger("tfdistr")

_HOOKS = [
    f"on_{what}_{when}"
    for what in ("train", "epoch", "train_batch", "test", "test_batch")
    for when in ("begin", "end")
]


def fit_by_keras(
    model: keras.Model,
    data: WorkerData,
    *,
    epochs: EpochRange,
    validation: WorkerData | None,
    callbacks: list[keras.callbacks.Callback],
    on_steps: OnSteps,
    weigh: Callable[[Any], object] | None = None,
    manager: CheckpointManager | None = None,
    times: StepTimes | None = None,
) -> dict[str, list[object]]:
    """Train like ``fit`` of ``loop.py``, but with the model's own ``fit``; checkpoints are after epochs."""
    check_read_by_keras(data, validation)
    times = times or StepTimes()
    first = epochs.first
    kept = callbacks
    if manager:
        kept = [keras.callbacks.History(), *callbacks]  # the history comes before the listener
        manager.before_training(kept, epochs.end)
        first = epochs.end if manager.ended else max(first, manager.start.epoch)
        if manager.found:
            build(model, data, optimizer=False)
    saves = _Saves(model, manager, kept, first, data.steps, times) if manager else None
    hooks = _MeasuredHooks(times)
    dataset: Any = data.dataset
    listed = [hooks.begin, *kept, *([saves] if saves else []), hooks.end, _Progress(on_steps, times)]
    with _read_by(model, data, weigh):
        history = model.fit(
            dataset.map(lambda *batch: weigh(batch)) if weigh else dataset,
            epochs=epochs.end,
            initial_epoch=first,
            steps_per_epoch=data.steps,
            validation_data=validation.dataset if validation else None,
            validation_steps=validation.steps if validation else None,
            validation_freq=epochs.validation_freq,
            shuffle=False,  # the data is already shuffled; Keras would warn
            callbacks=listed,
            verbose=0,
        )
    if saves:
        saves.check_end(epochs.end)
    return dict(history.history)


@contextlib.contextmanager
def _read_by(model: keras.Model, data: WorkerData, weigh: Callable[[Any], object] | None) -> Iterator[None]:
    """Let the check of the first batch read ``data`` within the context: Keras sees a pipeline only."""
    calls = getattr(model.distribute_strategy.extended, "calls", None)
    if calls is None:
        yield
        return

    def look() -> Any:
        rows = data.look()
        return rows if weigh is None or rows is None else weigh(rows)

    calls.data_of = model, look
    try:
        yield
    finally:
        calls.data_of = None


def check_read_by_keras(*read: WorkerData | None) -> None:
    """Refuse data that Keras's loop cannot read."""
    if any(data and data.fed for data in read):
        raise ArgumentError(
            "Only the loop of distributed_fit() can read a PyDataset or a generator.",
            received="a model with its own loop, or several devices",
            fix="Pass a function that returns a tf.data.Dataset.",
        )


class _MeasuredHooks:
    """The measurement of callbacks that Keras calls: ``begin`` is before them in Keras's list, ``end`` after.

    A loop that calls only some callbacks is not measured.
    """

    def __init__(self, times: StepTimes) -> None:
        self._times = times
        self._running: tuple[str, contextlib.AbstractContextManager[None]] | None = None
        self.begin, self.end = _Hooks(self._begin), _Hooks(self._end)

    def _begin(self, hook: str) -> None:
        self._running = (hook, self._times.measure("callbacks"))
        self._running[1].__enter__()

    def _end(self, hook: str) -> None:
        running, self._running = self._running, None
        if running is not None and running[0] == hook:
            running[1].__exit__(None, None, None)


class _Hooks(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that passes the name of each hook on."""

    decides = False
    remembers = False

    def __init__(self, on_hook: Callable[[str], None]) -> None:
        super().__init__()
        for hook in _HOOKS:
            setattr(self, hook, lambda *_, hook=hook, **__: on_hook(hook))


class _Progress(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that reports progress."""

    decides = False  # needs no metrics of other workers
    remembers = False  # a checkpoint does not store it

    def __init__(self, on_steps: OnSteps, times: StepTimes) -> None:
        super().__init__()
        self._on_steps, self._times = on_steps, times

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        progress()
        self._times.step_done()
        self._on_steps(batch + 1, logs)

    def on_test_batch_end(self, batch: int, logs: object = None) -> None:
        progress()


class _Saves(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that restores the training at its start, and saves it after epochs."""

    decides = False
    remembers = False

    def __init__(
        self,
        model: keras.Model,
        manager: CheckpointManager,
        kept: list[keras.callbacks.Callback],
        first: int,
        steps: int | None,
        times: StepTimes,
    ) -> None:
        super().__init__()
        self._times = times
        self._trained, self._manager, self._saved_callbacks, self._steps = model, manager, kept, steps
        self._next = first
        self._begun = False
        self._done = 0

    def on_train_begin(self, logs: object = None) -> None:
        if self._begun:
            raise _refused(self._trained, "starts to train for a second time")
        self._begun = True
        self._manager.begin(self._trained, self._saved_callbacks)

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        # BackupAndRestore also changes the first epoch.
        expected = max(self._next, tf_internals.initial_epoch(self._trained))
        if not self._begun or epoch != expected:
            raise _refused(self._trained, f"starts epoch {epoch + 1} where epoch {expected + 1} is the next")
        self._next, self._done = epoch + 1, 0

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self._done = batch + 1

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        extended = extended_of(self._trained)
        if extended is not None and extended.collectives is not None:
            extended.checks.calls.before("the end of an epoch")
        # The user's loop need not call callbacks for batches.
        with self._times.measure("checkpoints"):
            done = self._done or self._steps or 0
            self._manager.after_epoch(self._trained, self._saved_callbacks, epoch, done)

    def check_end(self, epochs: int) -> None:
        """Warn if the loop called no callbacks, and refuse it if it should have resumed from a checkpoint."""
        if self._begun and (self._next >= epochs or self._trained.stop_training):
            return
        if self._manager.found:
            raise _refused(self._trained, "calls no callbacks, and did not resume")
        name = type(self._trained).__name__
        log.warning("%s.fit() calls no callbacks: there are no checkpoints of its epochs.", name)


def _refused(model: keras.Model, received: str) -> ArgumentError:
    return ArgumentError(
        "With checkpoints a fit() of the model must train each epoch once, from `initial_epoch` on, and call "
        "the callbacks.",
        received=f"{type(model).__name__}.fit(), which {received}",
        fix="Make it pass `initial_epoch`, `epochs` and `callbacks` to super().fit() once, or leave "
        "`checkpoint_every` and `resume` out.",
    )

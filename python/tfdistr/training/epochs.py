"""The epochs of a training and its callbacks, whoever makes its steps."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.checkpoint.manager import CheckpointManager
from tfdistr.strategies.callbacks import wants_batches
from tfdistr.strategies.exact.step_logs import flat_logs
from tfdistr.training.job import EpochRange
from tfdistr.training.step_times import StepTimes

_Logs = Mapping[str, object] | None
#: Called with the number of finished steps of the epoch, and the logs of the last step.
OnSteps = Callable[[int, Any], None]


class CallbackList(keras.callbacks.CallbackList):  # type: ignore[misc]
    """Keras's list, whose hooks run on the thread of the training loop and never drop an interrupt.

    The hooks of Keras 3.15 ignore every exception while they turn logs into Python numbers. So an interrupt
    at this moment would be lost.
    """

    def __init__(self, *args: object, times: StepTimes | None = None, **kwargs: object) -> None:
        self.times = times or StepTimes()
        super().__init__(*args, **kwargs)

    def _of_training(self, hook: str, logs: _Logs = None) -> None:
        self._call(hook, numbers_of(logs))

    def _of_epoch(self, hook: str, epoch: int, logs: _Logs = None) -> None:
        self._call(hook, epoch, numbers_of(logs))

    def _of_batch(self, hook: str, batch: int, logs: _Logs = None) -> None:
        self._call(hook, batch, logs=numbers_of(logs))  # by name, as Keras does

    def _call(self, hook: str, *arguments: object, **named: object) -> None:
        with self.times.measure("callbacks"):
            for callback in self.callbacks:
                getattr(callback, hook)(*arguments, **named)

    on_train_begin = functools.partialmethod(_of_training, "on_train_begin")
    on_train_end = functools.partialmethod(_of_training, "on_train_end")
    on_epoch_begin = functools.partialmethod(_of_epoch, "on_epoch_begin")
    on_epoch_end = functools.partialmethod(_of_epoch, "on_epoch_end")
    on_train_batch_begin = functools.partialmethod(_of_batch, "on_train_batch_begin")
    on_train_batch_end = functools.partialmethod(_of_batch, "on_train_batch_end")
    on_test_begin = functools.partialmethod(_of_training, "on_test_begin")
    on_test_end = functools.partialmethod(_of_training, "on_test_end")
    on_test_batch_begin = functools.partialmethod(_of_batch, "on_test_batch_begin")
    on_test_batch_end = functools.partialmethod(_of_batch, "on_test_batch_end")


def numbers_of(logs: _Logs) -> dict[str, object]:
    """Return logs as Keras passes them to callbacks: sorted, flat, and with Python numbers."""
    flat = flat_logs(dict(logs or {}))
    return {name: value if type(value) is float else _number(value) for name, value in flat.items()}


def _number(value: Any) -> Any:
    try:
        return float(keras.ops.convert_to_numpy(value) if tf.is_tensor(value) else value)
    except Exception:  # it is no number
        return value


class Phase(ABC):
    """The training, or the validation, of the epochs, one after the other.

    Attributes:
        done: Number of steps of the epoch that are done.
    """

    #: The number of steps between two checkpoints is a multiple of it.
    execution = 1

    def __init__(
        self,
        model: keras.Model,
        kind: str,
        steps: int | None,
        callbacks: CallbackList,
        manager: CheckpointManager | None = None,
        on_steps: OnSteps = lambda done, logs: None,
    ) -> None:
        self.done = 0
        self.model, self.kind, self.steps = model, kind, steps
        self.callbacks, self.manager, self.on_steps = callbacks, manager, on_steps
        self.by_batch = any(wants_batches(callback, kind) for callback in callbacks.callbacks)
        self.batch_begins = getattr(callbacks, f"on_{kind}_batch_begin")
        self.batch_ended = getattr(callbacks, f"on_{kind}_batch_end")

    @property
    def pace(self) -> int | None:
        """The number of steps to make at once; None for all up to the next checkpoint."""
        return None

    @abstractmethod
    def begin(self, epoch: int, done: int) -> None:
        """Prepare the steps of an epoch."""

    @abstractmethod
    def make(self, count: int) -> bool:
        """Make ``count`` steps, and return whether the data continues."""

    @abstractmethod
    def logs_to_keep(self) -> object:
        """Return the logs for a checkpoint within an epoch, if it must have them."""

    @abstractmethod
    def logs(self) -> dict[str, Any]:
        """Return the logs of the epoch."""

    def skip(self, epochs: int) -> None:
        """Skip the data of some epochs, before the first one."""
        if self.manager:
            schedule = self.manager.schedule
            schedule.begin_after(schedule.total + epochs * (self.steps or 0))

    @abstractmethod
    def reset(self) -> None:
        """Reset the metrics of the model."""

    @abstractmethod
    def finish(self) -> None:
        """Do the work after the last epoch, so that the weights are final."""

    def run(self, epoch: int, done: int) -> dict[str, Any]:
        """Make the steps of one epoch, of which ``done`` are already done, and return its logs."""
        stop = "stop_training" if self.kind == "train" else "stop_evaluating"
        if self.kind == "test":
            self.model.stop_evaluating = False
        self.done = done
        self.begin(epoch, done)
        if self.manager:
            self.manager.schedule.begin_epoch(done, self.execution)
        while self.steps is None or self.done < self.steps:
            limits = [self.pace, self.steps and self.steps - self.done]
            limits += [self.manager.schedule.until(self.done)] if self.manager else []
            if not self.make(min(limit for limit in limits if limit is not None)):
                break
            if getattr(self.model, stop):
                break
            if self.manager and self.done != self.steps:
                kept = self.logs_to_keep()
                with self.callbacks.times.measure("checkpoints"):
                    self.manager.after_steps(self.model, self.callbacks.callbacks, epoch, self.done, kept)
        return self.logs()


def run_epochs(
    model: keras.Model,
    epochs: EpochRange,
    callbacks: CallbackList,
    train: Phase,
    test: Phase | None = None,
    manager: CheckpointManager | None = None,
) -> None:
    """Train a model for a number of epochs, as Keras's ``fit`` does."""
    model.stop_training = False
    if manager:
        manager.before_training(callbacks.callbacks, epochs.end)
    callbacks.on_train_begin()
    first, done = manager.begin(model, callbacks.callbacks) if manager else (0, 0)
    logs = {name: values[-1] for name, values in model.history.history.items() if values}
    begun = max(first, epochs.first)
    restored = tf_internals.initial_epoch(model)  # by BackupAndRestore
    if restored > begun:
        train.skip(restored - begun)
    for epoch in range(max(begun, restored), epochs.end):
        if model.stop_training:  # the checkpoint may have set it
            break
        train.reset()
        callbacks.on_epoch_begin(epoch)
        if manager and done:
            manager.restore(model, callbacks.callbacks)
        logs = train.run(epoch, done)
        done = 0
        if test and epochs.validates(epoch):
            callbacks.on_test_begin()
            test.reset()
            tested = test.run(epoch, 0)
            callbacks.on_test_end(tested)
            logs |= {f"val_{name}": value for name, value in tested.items()}
        callbacks.on_epoch_end(epoch, logs)
        if manager:
            with callbacks.times.measure("checkpoints"):
                manager.after_epoch(model, callbacks.callbacks, epoch, train.done)
        if model.stop_training:
            break
    train.finish()
    callbacks.on_train_end(logs)

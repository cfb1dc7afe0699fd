"""The epochs of a training, whoever makes its steps."""

from __future__ import annotations

from typing import Any, Protocol

import keras

from tfdistr import tf_internals
from tfdistr.checkpoint.manager import CheckpointManager
from tfdistr.training.callback_list import CallbackList
from tfdistr.training.epoch_range import EpochRange


class Phase(Protocol):
    """The training, or the validation, of the epochs, one after the other.

    Attributes:
        done: Number of steps of the epoch that are done.
    """

    done: int

    def skip(self, epochs: int) -> None:
        """Leave out the data of some epochs, before the first one."""

    def reset(self) -> None:
        """Reset the metrics of the model."""

    def run(self, epoch: int, done: int) -> dict[str, Any]:
        """Make the steps of one epoch, of which ``done`` are already done, and return its logs."""

    def finish(self) -> None:
        """Do the work after the last epoch, so that the weights are final."""


def run_epochs(
    model: keras.Model,
    epochs: EpochRange,
    callbacks: CallbackList,
    train: Phase,
    test: Phase | None = None,
    manager: CheckpointManager | None = None,
) -> None:
    """Train a model for a number of epochs, as Keras's ``fit`` does.

    Args:
        model: The model.
        epochs: The epochs.
        callbacks: All callbacks.
        train: The training.
        test: The validation after epochs.
        manager: Keeps checkpoints.

    Raises:
        JobStoppedError: The job was told to end.
    """
    model.stop_training = False
    if manager:
        manager.before_training(callbacks.callbacks, epochs.end)
    callbacks.on_train_begin()
    first, done = manager.begin(model, callbacks.callbacks) if manager else (0, 0)
    logs = last_logs(model)
    begun = max(first, epochs.first)
    restored = tf_internals.initial_epoch(model)  # by BackupAndRestore
    if restored > begun:
        train.skip(restored - begun)
    for epoch in range(max(begun, restored), epochs.end):
        if model.stop_training:  # the checkpoint may say so
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
            manager.after_epoch(model, callbacks.callbacks, epoch, train.done)
        if model.stop_training:
            break
    train.finish()
    callbacks.on_train_end(logs)


def last_logs(model: keras.Model) -> dict[str, Any]:
    """Return the logs of the last epoch that the model's history has."""
    return {name: values[-1] for name, values in model.history.history.items() if values}

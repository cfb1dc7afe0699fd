"""Keras's ``BackupAndRestore``: a resumed training continues in the data, as without an interruption.

Keras would restart the data, and repeat the shuffles of the first epochs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError


def check_backups(callbacks: Iterable[object]) -> None:
    """Refuse a ``BackupAndRestore`` that saves within epochs: Keras cannot continue from it exactly."""
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.BackupAndRestore) and callback.save_freq != "epoch":
            raise ArgumentError(
                "BackupAndRestore must save after epochs: Keras restarts an epoch with the weights of its "
                "middle.",
                received=f"save_freq={callback.save_freq}",
                fix='Pass save_freq="epoch", or train with distributed_fit(checkpoint_every=100), which '
                "resumes within an epoch.",
            )


def resume_data(callbacks: keras.callbacks.CallbackList) -> None:
    """Let a call of ``fit`` continue in its data, if a ``BackupAndRestore`` among the callbacks resumes."""
    listed = callbacks.callbacks
    check_backups(listed)
    if any(isinstance(c, keras.callbacks.BackupAndRestore) for c in listed) and not any(
        isinstance(c, _ResumedData) for c in listed
    ):
        last = _ResumedData()
        last.set_model(callbacks.model)
        listed.append(last)


def watch_backups(call: tf_internals.KerasCall) -> None:
    """Let the starting call of ``fit`` continue in its data, on a worker without peers."""
    given = call.variables["callbacks"]
    given = given.callbacks if isinstance(given, keras.callbacks.CallbackList) else tf.nest.flatten(given)
    if not any(isinstance(callback, keras.callbacks.BackupAndRestore) for callback in given):
        return
    model = call.model

    def make(*args: object) -> Any:
        delattr(model, "make_train_function")
        running = tf_internals.keras_call()
        if running is not None:  # otherwise train_on_batch() finds the rest of a failed call
            resume_data(running.callbacks)
        return model.make_train_function(*args)

    vars(model).pop("make_train_function", None)  # from an earlier failed call
    model.make_train_function = make


class _ResumedData(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback after ``BackupAndRestore`` that skips the data of restored epochs."""

    decides = False
    remembers = False

    def on_train_begin(self, logs: object = None) -> None:
        call = tf_internals.keras_call()
        if call is not None:  # otherwise the loop of distributed_fit() does it
            done = tf_internals.initial_epoch(self.model) - call.variables["initial_epoch"]
            tf_internals.pass_epochs(call, done)

"""The calls of the user's functions, and checks of their results: a compiled model, and callbacks."""

from __future__ import annotations

import keras

from tfdistr.errors import ArgumentError
from tfdistr.strategies.backup import check_backups
from tfdistr.training.job import Job, not_a_callback
from tfdistr.utils.describe import describe


def build_model(job: Job) -> keras.Model:
    """Return the job's model, compiled, with the state that the job gives it.

    Raises:
        ArgumentError: The function returned something else.
    """
    model = job.model()
    if not isinstance(model, keras.Model):
        raise ArgumentError(
            "`model` must be a function that returns a Keras 3 model.",
            received=f"a function that returned {describe(model)}",
            fix="Return the model at the end of the function.",
        )
    if not model.compiled:
        raise ArgumentError(
            "`model` must return a compiled model.",
            received="a model that was not compiled",
            fix="Call model.compile(optimizer=..., loss=...) in the function.",
        )
    return model if job.state is None else job.state.give(model)


def make_callbacks(job: Job) -> list[keras.callbacks.Callback]:
    """Return the job's callbacks.

    Raises:
        ArgumentError: One of them is no callback, or is a ``BackupAndRestore`` that saves within epochs.
    """
    made = job.callbacks() if callable(job.callbacks) else job.callbacks
    callbacks = [] if made is None else [made] if isinstance(made, keras.callbacks.Callback) else list(made)
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise not_a_callback(callback)
    check_backups(callbacks)
    return callbacks

"""The model and the callbacks of a job on one worker: from the user's functions, and after training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from tfdistr.data.form import Form
from tfdistr.data.pipeline.worker_data import WorkerData
from tfdistr.errors import ArgumentError
from tfdistr.strategies.backup import check_backups
from tfdistr.strategies.build import build
from tfdistr.training.in_session import InSession, at_epoch_end
from tfdistr.training.job import Job, not_a_callback
from tfdistr.training.reporter import OnEvent, Reporter
from tfdistr.utils.describe import describe


def build_model(job: Job) -> keras.Model:
    """Return the job's model, compiled, with the state that the job gives it."""
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


def make_callbacks(
    job: Job, on_event: OnEvent, *, chief: bool
) -> tuple[list[keras.callbacks.Callback], Reporter]:
    """Return the job's callbacks, and the reporter, which comes after them."""
    callbacks, of_session = split_callbacks(job)
    at_end = at_epoch_end(of_session, job.answers, on_event, chief=chief)
    return callbacks, Reporter(on_event, chief=chief, at_end=at_end)


def split_callbacks(job: Job) -> tuple[list[keras.callbacks.Callback], list[InSession]]:
    """Return the job's callbacks, and those of the session.

    Other objects are refused, and a ``BackupAndRestore`` that saves within epochs.
    """
    made = job.callbacks() if callable(job.callbacks) else job.callbacks
    callbacks = [] if made is None else [made] if hasattr(made, "on_epoch_end") else list(made)
    of_session = [callback for callback in callbacks if isinstance(callback, InSession)]
    callbacks = [callback for callback in callbacks if not isinstance(callback, InSession)]
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise not_a_callback(callback)
    check_backups(callbacks)
    return callbacks, of_session


@dataclass(frozen=True, kw_only=True)
class Training:
    """The result of training on one worker.

    Attributes:
        history: Metric values by name, one for each epoch; a list where a metric has several values.
        seconds: The duration of training, from the first batch on.
        communication: The backend of the gradients; see ``FitResult``.
        model: The trained model; None if nothing was trained.
        inputs: Shapes and types of a batch of inputs, with which a model can be built.
        described: The description of a model from a function of an R file; see ``describe_model``.
        times: The seconds of each part of the training; see ``step_times.py``. Empty if nothing was trained.
        differences: Why the result is not that of one worker, as far as it is known.
        xla: What XLA has compiled of the steps: "whole steps", "between exchanges" or "nothing".
        report: With parameter servers, the numbers of the last "worker_steps" event: ``global_step``,
            ``not_computed``, and for each worker, by its index, ``local_steps`` and ``dropped``.
        form: The form of the data.
    """

    history: dict[str, list[Any]]
    seconds: float
    communication: str
    model: keras.Model | None = None
    inputs: Any = None
    described: str | None = None
    times: dict[str, float] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    xla: str = "nothing"
    report: dict[str, Any] = field(default_factory=dict)
    form: Form = field(default_factory=Form)


def input_spec(data: WorkerData) -> object:
    """Return the shapes and types of a batch of one row of the inputs."""
    spec = data.element_spec
    inputs = spec[0] if isinstance(spec, tuple) else spec

    def describe(part: Any) -> tuple[list[int], str]:
        sides = part.shape[1:] if part.shape.rank is not None else []
        return [1, *(side or 1 for side in sides)], part.dtype.name

    return tf.nest.map_structure(describe, inputs)


def copy_here(
    job: Job, model: keras.Model, data: WorkerData, callbacks: Sequence[keras.callbacks.Callback]
) -> keras.Model:
    """Copy the trained model here, before the remote variables are lost; the callbacks get the copy."""
    keras.utils.set_random_seed(job.seed)
    copy = build_model(job)
    build(copy, data)
    for mine, theirs in zip(_state(copy), _state(model), strict=True):
        mine.assign(theirs.numpy())
    for callback in callbacks:
        keras.callbacks.Callback.set_model(callback, copy)
    return copy


def _state(model: keras.Model) -> list[keras.Variable]:
    """Return all variables except the metrics: weights, random numbers and optimizer state."""
    return [*model.variables, *(model.optimizer.variables if model.optimizer is not None else ())]

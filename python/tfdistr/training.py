"""Training as one worker does it: the model inside the strategy's scope, its share of the data, ``fit``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr.data.class_weight import weigh_classes
from tfdistr.data.context import WorkerContext
from tfdistr.data.first_look import has_known_shapes
from tfdistr.data.host_memory import HostMemory
from tfdistr.data.pipeline import WorkerData, make_data
from tfdistr.data.source import Source
from tfdistr.errors import ArgumentError
from tfdistr.job import Job, Named
from tfdistr.strategy import MultiWorkerMirroredStrategy
from tfdistr.training_loop import fit, fit_by_keras, runs_own_loop
from tfdistr.warm_up import scale_learning_rate

#: Seconds between two reports of a step's metrics. Reading them makes the step wait for its end.
REPORT_INTERVAL = 0.25

OnEvent = Callable[..., None]


@dataclass(frozen=True)
class Training:
    """What is there after training on one worker.

    Attributes:
        model: The trained model.
        history: Metric values by name, one for each epoch.
        inputs: Shapes and types of a batch of inputs, with which a model can be built.
        seconds: How long training took, from the first batch on.
    """

    model: keras.Model
    history: dict[str, list[float]]
    inputs: Any
    seconds: float


def train(job: Job, strategy: Any, on_event: OnEvent) -> Training:
    """Train the job's model as this worker.

    Args:
        job: What to train.
        strategy: What ``make_strategy()`` has made; None to train in this process alone.
        on_event: Called as ``on_event(kind, **fields)`` with what a progress display shows.

    Raises:
        ArgumentError: The model function or the callbacks are not what they must be.
        DataShardError: The data cannot be split over the workers.
    """
    if isinstance(strategy, MultiWorkerMirroredStrategy):
        strategy.gradient_dtype = job.gradient_dtype
    keras.utils.set_random_seed(job.seed)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = build_model(job)
        warm_up = scale_learning_rate(model.optimizer, job.learning_rate_factor, job.warmup_epochs)
        callbacks = make_callbacks(job)
    context = _context(job, strategy)
    data = make_data(_source(job.data), context, job.steps_per_epoch)
    validation = None
    if job.validation is not None:
        in_order = replace(context, shuffle=False, drop_remainder=False)
        validation = make_data(
            _source(job.validation), in_order, job.validation_steps, name="validation_data"
        )
    weigh = weigh_classes(job.class_weight, data.dataset.element_spec) if job.class_weight else None
    reporter = Reporter(on_event, data.steps, chief=strategy is None or strategy.is_chief)
    callbacks = [*warm_up, *callbacks, reporter]
    if strategy is None and not has_known_shapes(data.dataset):
        # Under a strategy, a batch is read to build the model, which moves on an iteration-dependent
        # shuffle. Here it is not; the order of the examples must be the same.
        next(iter(data.dataset), None)
    on_event("train_begin", epochs=job.epochs, steps=data.steps, examples=examples_of_epoch(job, data))
    started = time.monotonic()
    train_model = fit if runs_own_loop(model) else fit_by_keras
    history = train_model(
        model, data, epochs=job.epochs, validation=validation, callbacks=callbacks,
        on_steps=reporter.on_steps, weigh=weigh,
    )  # fmt: skip
    return Training(
        model=model,
        history=history_of(history),
        inputs=input_spec(data.dataset),
        seconds=time.monotonic() - started,
    )


def examples_of_epoch(job: Job, data: WorkerData) -> int | None:
    """How many examples an epoch has, of all workers together; None if that is not known."""
    if data.steps is None or job.batch_size is None:
        return None
    if data.arrays is not None:
        return sum(map(data.arrays.rows, range(data.steps)))
    return data.steps * job.batch_size


def build_model(job: Job) -> keras.Model:
    """The job's model, compiled.

    Raises:
        ArgumentError: The function gave something else.
    """
    model = job.model()
    if not isinstance(model, keras.Model):
        raise ArgumentError(
            "`model` must be a function that returns a Keras 3 model.",
            received=f"a function that returned {type(model).__module__}.{type(model).__name__}",
            fix="End the function with the model: return model (in R: model).",
        )
    if not model.compiled:
        raise ArgumentError(
            "`model` must return a compiled model.",
            received="a model that was not compiled",
            fix="Call model.compile(optimizer=..., loss=...) in the function.",
        )
    return model


def make_callbacks(job: Job) -> list[keras.callbacks.Callback]:
    """The job's callbacks.

    Raises:
        ArgumentError: One is none.
    """
    made = job.callbacks() if callable(job.callbacks) else job.callbacks
    callbacks = [] if made is None else [made] if isinstance(made, keras.callbacks.Callback) else list(made)
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise ArgumentError(
                "`callbacks` must be Keras callbacks, or a function that returns them.",
                received=f"{type(callback).__module__}.{type(callback).__name__}",
                fix="Pass a list of keras.callbacks.Callback objects.",
            )
    return callbacks


def _source(source: Source | Named) -> Source:
    assert not isinstance(source, Named)  # Job.load() has put in what it stands for
    return source


def _context(job: Job, strategy: Any) -> WorkerContext:
    collectives = getattr(strategy.extended, "collectives", None) if strategy else None
    return WorkerContext(
        num_workers=strategy.num_workers if strategy else 1,
        index=strategy.worker_index if strategy else 0,
        global_batch_size=job.batch_size,
        seed=job.seed,
        shuffle=job.shuffle,
        drop_remainder=job.drop_remainder,
        _memory=HostMemory.join(collectives.exchange) if collectives else HostMemory(),
    )


def input_spec(dataset: tf.data.Dataset) -> Any:
    """Shapes and types of a batch of one row of the inputs."""
    spec = dataset.element_spec
    inputs = spec[0] if isinstance(spec, tuple) else spec

    def describe(part: Any) -> tuple[list[int], str]:
        sides = part.shape[1:] if part.shape.rank is not None else []
        return [1, *(side or 1 for side in sides)], part.dtype.name

    return tf.nest.map_structure(describe, inputs)


class Reporter(keras.callbacks.Callback):  # type: ignore[misc]
    """Reports the progress of training. The chief's metrics are shown for the job."""

    def __init__(self, on_event: OnEvent, steps: int | None, *, chief: bool) -> None:
        super().__init__()
        self._on_event = on_event
        self._steps = steps
        self._chief = chief
        self._epoch = 0
        self._epoch_began = self._reported = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch, self._epoch_began = epoch, time.monotonic()
        self._on_event("epoch_begin", epoch=epoch)

    def on_steps(self, done: int, logs: Any) -> None:
        """Report that ``done`` steps of the epoch are done."""
        now = time.monotonic()
        if not self._chief or now - self._reported < REPORT_INTERVAL:
            return
        self._reported = now
        self._on_event("batch", epoch=self._epoch, step=done, steps=self._steps, metrics=_numbers(logs))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        seconds = time.monotonic() - self._epoch_began
        self._on_event("epoch_end", epoch=epoch, metrics=_numbers(logs), seconds=seconds)


def _numbers(logs: Any) -> dict[str, float]:
    """The metrics as numbers. One that has several, such as F1Score, becomes ``f1_score[0]`` and so on."""
    numbers: dict[str, float] = {}
    for name, value in (logs or {}).items():
        values = np.asarray(value, float)
        places = np.ndindex(values.shape)
        numbers |= {name + "".join(f"[{i}]" for i in place): float(values[place]) for place in places}
    return numbers


def history_of(history: dict[str, list[Any]]) -> dict[str, list[float]]:
    """Keras's history in plain numbers."""
    collected: dict[str, list[float]] = {}
    for name, values in history.items():
        for value in values:
            for label, number in _numbers({name: value}).items():
                collected.setdefault(label, []).append(number)
    return collected

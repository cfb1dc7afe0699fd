"""Training as one worker does it: the model inside the strategy's scope, its share of the data, ``fit``."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import _private
from tfdistr.data.class_weight import weigh_classes
from tfdistr.data.context import WorkerContext
from tfdistr.data.first_look import has_known_shapes
from tfdistr.data.host_memory import HostMemory
from tfdistr.data.pipeline import WorkerData, make_data
from tfdistr.data.source import Source
from tfdistr.errors import ArgumentError
from tfdistr.job import Job, Named
from tfdistr.model_parallel.strategy import ModelParallelStrategy
from tfdistr.recovery.checkpoint import CheckpointFolder
from tfdistr.recovery.keeper import Keeper
from tfdistr.recovery.run import checkpoints
from tfdistr.recovery.told_to_end import ToldToEnd
from tfdistr.strategy import MultiWorkerMirroredStrategy
from tfdistr.training_loop import build, fit, fit_by_keras, runs_own_loop
from tfdistr.warm_up import scale_learning_rate
from tfdistr.watchdog import Watchdog

#: Seconds between two reports of a step's metrics. Reading them makes the step wait for its end.
REPORT_INTERVAL = 0.25

OnEvent = Callable[..., None]

log = logging.getLogger("tfdistr")


@dataclass(frozen=True)
class Training:
    """What is there after training on one worker.

    Attributes:
        model: The trained model.
        history: Metric values by name, one for each epoch.
        inputs: Shapes and types of a batch of inputs, with which a model can be built.
        seconds: How long training took, from the first batch on.
        communication: What has carried the gradients between workers; see ``FitResult``.
    """

    model: keras.Model
    history: dict[str, list[float]]
    inputs: Any
    seconds: float
    communication: str


def train(
    job: Job, strategy: Any, on_event: OnEvent, run_dir: Path | None = None, told: ToldToEnd | None = None
) -> Training:
    """Train the job's model as this worker.

    Args:
        job: What to train.
        strategy: What ``make_strategy()`` has made; None to train in this process alone.
        on_event: Called as ``on_event(kind, **fields)`` with what a progress display shows.
        run_dir: Folder with the checkpoints of the job, if it has some; the chief's is used.
        told: Notes SIGTERM, if there are checkpoints; it then knows of one that came too late to be acted on.

    Raises:
        JobStoppedError: The job was told to end, and has saved what there is.
        ArgumentError: The model function or the callbacks are not what they must be.
        DataShardError: The data cannot be split over the workers.
        StepTimeoutError: This worker has made no step for too long.
    """
    title = "the chief" if isinstance(strategy, ModelParallelStrategy) and strategy.config else None
    with Watchdog(job.step_timeout, strategy, title):
        return _build_and_train(job, strategy, on_event, run_dir, told or ToldToEnd())


def _build_and_train(
    job: Job, strategy: Any, on_event: OnEvent, run_dir: Path | None, told: ToldToEnd
) -> Training:
    if isinstance(strategy, MultiWorkerMirroredStrategy):
        strategy.gradient_dtype = job.gradient_dtype
    keras.utils.set_random_seed(job.seed)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = build_model(job)
        warm_up = scale_learning_rate(model.optimizer, job.learning_rate_factor, job.warmup_epochs)
        callbacks = make_callbacks(job)
    context = _context(job, strategy)
    saves = _saves(job, strategy, model, on_event)
    with told if saves else contextlib.nullcontext():
        keeper = _keeper(job, strategy, told, on_event, run_dir) if saves else None
        return _train(job, strategy, on_event, model, [*warm_up, *callbacks], context, keeper)


def _train(
    job: Job,
    strategy: Any,
    on_event: OnEvent,
    model: keras.Model,
    callbacks: list[keras.callbacks.Callback],
    context: WorkerContext,
    keeper: Keeper | None,
) -> Training:
    first = keeper.first_step if keeper else 0
    data = make_data(_source(job.data), context, job.steps_per_epoch, first)
    if isinstance(strategy, ModelParallelStrategy):
        strategy.place(model, data.dataset)
    validation = None
    if job.validation is not None:
        in_order = replace(context, shuffle=False, drop_remainder=False)
        validation = make_data(
            _source(job.validation), in_order, job.validation_steps, name="validation_data"
        )
    weigh = weigh_classes(job.class_weight, data.dataset.element_spec) if job.class_weight else None
    reporter = Reporter(on_event, data.steps, chief=strategy is None or strategy.is_chief)
    callbacks = [*callbacks, reporter]
    if strategy is None and not has_known_shapes(data.dataset):
        # Under a strategy, a batch is read to build the model, which moves on an iteration-dependent
        # shuffle. Here it is not; the order of the examples must be the same.
        next(iter(data.dataset), None)
    on_event("train_begin", epochs=job.epochs, steps=data.steps, examples=examples_of_epoch(job, data))
    started = time.monotonic()
    train_model = fit if runs_own_loop(model) else fit_by_keras
    history = train_model(
        model, data, epochs=job.epochs, validation=validation, callbacks=callbacks,
        on_steps=reporter.on_steps, weigh=weigh, keeper=keeper,
    )  # fmt: skip
    seconds = time.monotonic() - started
    if isinstance(strategy, ModelParallelStrategy) and strategy.config is not None:
        model = copy_here(job, model, data.dataset, callbacks)
    return Training(
        model=model, history=history_of(history), inputs=input_spec(data.dataset), seconds=seconds,
        communication=getattr(strategy, "communication", "none"),
    )  # fmt: skip


def copy_here(
    job: Job, model: keras.Model, dataset: tf.data.Dataset, callbacks: Sequence[keras.callbacks.Callback]
) -> keras.Model:
    """A copy of the trained model, with its variables in this process, for those that would be gone.

    Args:
        job: The job.
        model: The model that was trained.
        dataset: Batches that it was trained with.
        callbacks: Callbacks that the user may still have: their model is the copy then.
    """
    keras.utils.set_random_seed(job.seed)
    copy = build_model(job)
    build(copy, dataset)
    for mine, theirs in zip(_state(copy), _state(model), strict=True):
        mine.assign(theirs.numpy())
    for callback in callbacks:
        keras.callbacks.Callback.set_model(callback, copy)
    return copy


def _state(model: keras.Model) -> list[keras.Variable]:
    """All variables but those of metrics: the weights, the random numbers, and what the optimizer keeps."""
    return [*model.variables, *(model.optimizer.variables if model.optimizer is not None else ())]


def _saves(job: Job, strategy: Any, model: keras.Model, on_event: OnEvent) -> bool:
    """Whether a job has checkpoints.

    Raises:
        ArgumentError: The user asked for checkpoints, and the model cannot have them.
    """
    every = job.recovery.every
    if every is None:
        return False
    received = None
    if _collectives(strategy) is None and strategy is not None and strategy.num_workers > 1:
        received = "workers with several devices each"
    elif _private.replaces_fit(model):
        received = "a model with a fit() of its own"
    elif every != "epoch" and not runs_own_loop(model):
        received = f"checkpoint_every={every}, and a model that Keras's own loop trains"
    if received is not None and job.recovery.asked:
        raise ArgumentError(
            "Checkpoints need a model that Keras's fit() trains, on one device of each worker; those within "
            "an epoch need the loop of distributed_fit().",
            received=received,
            fix='Pass checkpoint_every="epoch" where the model has another loop or several devices; where it '
            "has a fit() of its own, leave `checkpoint_every` and `resume` out.",
        )
    if received is not None:
        log.warning("There are no checkpoints of %s: restarts begin from the beginning.", received)
        on_event("unsaved")
    return received is None


def _keeper(job: Job, strategy: Any, told: ToldToEnd, on_event: OnEvent, run_dir: Path | None) -> Keeper:
    """What keeps the checkpoints of a job that has some."""
    every, collectives = job.recovery.every, _collectives(strategy)
    assert every is not None
    chief = strategy is None or strategy.is_chief
    assert run_dir is not None or not chief
    folder = checkpoints(run_dir) if chief and run_dir is not None else CheckpointFolder(Path())
    others = strategy.extended.watch.variables if collectives else ()
    return Keeper(folder, every, told, collectives=collectives, others=others, on_event=on_event)


def _collectives(strategy: Any) -> Any:
    return getattr(strategy.extended, "collectives", None) if strategy else None


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
    collectives = _collectives(strategy)
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

    remembers = False  # a checkpoint has nothing of it

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

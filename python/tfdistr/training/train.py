"""Training as one worker does it: the model in the strategy's scope, its share of the data, the loop."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path
from typing import Any

import keras

from tfdistr import _private
from tfdistr._utils.foreign import Named
from tfdistr.checkpoint.folder import CheckpointFolder, checkpoints
from tfdistr.checkpoint.keeper import Keeper
from tfdistr.checkpoint.preemption import Preemption
from tfdistr.data.class_weight import weigh_classes
from tfdistr.data.host_cache import HostMemory
from tfdistr.data.pipeline import WorkerData, make_data
from tfdistr.data.source import Source
from tfdistr.errors import ArgumentError
from tfdistr.strategies.worker_strategy import WorkerStrategy
from tfdistr.training.job import Job
from tfdistr.training.loop import fit, fit_by_keras, runs_own_loop
from tfdistr.training.reporter import OnEvent, Reporter, examples_of_epoch, history_of
from tfdistr.training.trained_model import Training, copy_here, input_spec
from tfdistr.training.user_code import build_model, make_callbacks
from tfdistr.training.warm_up import scale_learning_rate
from tfdistr.training.watchdog import Watchdog

log = logging.getLogger("tfdistr")


def train(
    job: Job,
    strategy: WorkerStrategy,
    on_event: OnEvent,
    run_dir: Path | None = None,
    preemption: Preemption | None = None,
) -> Training:
    """Train the job's model as this worker.

    Args:
        job: The job.
        strategy: The result of ``make_strategy()``, or ``SingleWorker()``.
        on_event: Called as ``on_event(kind, **fields)`` with the events of the progress display.
        run_dir: Folder with the checkpoints of the job, if it has any; only the chief's folder is used.
        preemption: Notes SIGTERM, if there are checkpoints. After the call, it tells whether a SIGTERM came
            too late to be handled.

    Raises:
        JobStoppedError: The job was told to end, and has saved a checkpoint.
        ArgumentError: The model function or the callbacks are not valid.
        DataShardError: The data cannot be split over the workers.
        StepTimeoutError: This worker has made no step for too long.
    """
    with Watchdog(job.step_timeout, strategy):
        return _build_and_train(job, strategy, on_event, run_dir, preemption or Preemption())


def _build_and_train(
    job: Job, strategy: WorkerStrategy, on_event: OnEvent, run_dir: Path | None, preemption: Preemption
) -> Training:
    strategy.gradient_dtype = job.gradient_dtype
    keras.utils.set_random_seed(job.seed)
    with strategy.scope():
        model = build_model(job)
        warm_up = scale_learning_rate(model.optimizer, job.learning_rate_factor, job.warmup_epochs)
        callbacks = make_callbacks(job)
    saves = _saves(job, strategy, model, on_event)
    with preemption if saves else contextlib.nullcontext():
        keeper = _keeper(job, strategy, preemption, on_event, run_dir) if saves else None
        return _train(job, strategy, on_event, model, [*warm_up, *callbacks], keeper)


def _train(
    job: Job,
    strategy: WorkerStrategy,
    on_event: OnEvent,
    model: keras.Model,
    callbacks: list[keras.callbacks.Callback],
    keeper: Keeper | None,
) -> Training:
    place: dict[str, Any] = {
        "num_workers": strategy.num_workers,
        "index": strategy.worker_index,
        "virtual_workers": strategy.own_virtual_workers,
    }
    memory = HostMemory.join(strategy.collectives.exchange) if strategy.collectives else HostMemory()
    data = _training_data(job, place, keeper, memory)
    validation = None
    if job.validation is not None:
        validation = make_data(
            _source(job.validation), job.context(training=False, **place), job.validation_steps,
            name="validation_data", memory=memory,
        )  # fmt: skip
    strategy.prepare(model, data.dataset)
    weigh = weigh_classes(job.class_weight, data.dataset.element_spec) if job.class_weight else None
    reporter = Reporter(on_event, data.steps, chief=strategy.is_chief)
    callbacks = [*callbacks, reporter]
    examples = examples_of_epoch(job, data)
    on_event("train_begin", epochs=job.epochs, steps=data.steps, examples=examples)
    started = time.monotonic()
    train_model = fit if runs_own_loop(model) else fit_by_keras
    history = train_model(
        model, data, epochs=job.all_epochs, validation=validation, callbacks=callbacks,
        on_steps=reporter.on_steps, weigh=weigh, keeper=keeper,
    )  # fmt: skip
    seconds = time.monotonic() - started
    if strategy.variables_are_remote:
        model = copy_here(job, model, data.dataset, callbacks)
    return Training(
        model=model, history=history_of(history), inputs=input_spec(data.dataset), seconds=seconds,
        communication=strategy.communication,
    )  # fmt: skip


def _training_data(job: Job, place: dict[str, Any], keeper: Keeper | None, memory: HostMemory) -> WorkerData:
    """This worker's batches, from the first step on that the training makes."""

    def data(first: int) -> WorkerData:
        context = job.context(training=True, **place)
        return make_data(job.source, context, job.steps_per_epoch, first, memory=memory)

    if keeper and keeper.found:
        return data(keeper.first_step)
    if job.initial_epoch == 0:
        return data(0)
    # If the number of steps is unknown, the data begins with its first pass.
    first = job.initial_epoch * (job.steps_per_epoch or data(0).steps or 0)
    if keeper:
        keeper.begin_after(first)
    return data(first)


def _saves(job: Job, strategy: WorkerStrategy, model: keras.Model, on_event: OnEvent) -> bool:
    """Whether a job has checkpoints.

    Raises:
        ArgumentError: The user asked for checkpoints, and the model cannot have them.
    """
    every = job.recovery.every
    if every is None:
        return False
    received = None
    if strategy.collectives is None and strategy.num_workers > 1:
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


def _keeper(
    job: Job, strategy: WorkerStrategy, preemption: Preemption, on_event: OnEvent, run_dir: Path | None
) -> Keeper:
    """Make the keeper of the checkpoints of a job."""
    every = job.recovery.every
    assert every is not None
    assert run_dir is not None or not strategy.is_chief
    folder = checkpoints(run_dir) if strategy.is_chief and run_dir is not None else CheckpointFolder(Path())
    return Keeper(
        folder, every, preemption, collectives=strategy.collectives, others=strategy.variables_beside(),
        on_event=on_event,
    )  # fmt: skip


def _source(source: Source | Named) -> Source:
    assert not isinstance(source, Named)  # Job.load() has replaced it
    return source

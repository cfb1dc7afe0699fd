"""The training of one worker: the model in the strategy's scope, its share of the data, and the loop."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from pathlib import Path

import keras

from tfdistr import tf_internals
from tfdistr.checkpoint.folder import CheckpointFolder, checkpoints
from tfdistr.checkpoint.manager import CheckpointManager
from tfdistr.checkpoint.preemption import Preemption
from tfdistr.collectives.comparison import agree, describe_parts, parts_of_run, versions
from tfdistr.data.pipeline.fed_batches import FedBatches
from tfdistr.data.pipeline.worker_data import WorkerData
from tfdistr.data.source import Arrays
from tfdistr.errors import ArgumentError
from tfdistr.r.functions import RFunction
from tfdistr.strategies.agreement import check_agreement
from tfdistr.strategies.exact.step_trace import StepTrace
from tfdistr.strategies.virtual.rounding import describe_kernels
from tfdistr.strategies.worker_strategy import WorkerStrategy
from tfdistr.strategies.xla import compiled_by_xla
from tfdistr.training.data_checks import check_data
from tfdistr.training.described_model import describe_model
from tfdistr.training.fit_by_keras import fit_by_keras
from tfdistr.training.job import Job
from tfdistr.training.job_data import Reader, weigh_classes
from tfdistr.training.learning_rate import scale_learning_rate
from tfdistr.training.loop import fit, runs_own_loop
from tfdistr.training.reporter import OnEvent, Reporter, history_of, warn_if_slower_than_one
from tfdistr.training.run_trace import RunTrace
from tfdistr.training.step_blocks import extended_of
from tfdistr.training.step_times import StepTimes
from tfdistr.training.trained_model import Training, build_model, copy_here, input_spec, make_callbacks
from tfdistr.utils.function_files import FunctionByName

log = logging.getLogger("tfdistr")


def train(
    job: Job, strategy: WorkerStrategy, on_event: OnEvent, run_dir: Path | None, preemption: Preemption
) -> Training:
    """Train the job's model as this worker; see ``run_task()`` for the arguments and the errors."""
    strategy.gradient_dtype = job.gradient_dtype
    keras.utils.set_random_seed(job.seed)
    with strategy.scope():
        model = build_model(job)
        if strategy.collectives is not None:  # the next exchange is about the data, or about more variables
            agree(strategy.collectives, describe_parts(model))
        warm_up = scale_learning_rate(model.optimizer, job.learning_rate_factor, job.warmup_epochs)
        callbacks, reporter = make_callbacks(job, on_event, chief=strategy.is_chief)
    saves = _saves(job, strategy, model, on_event)
    with preemption if saves else contextlib.nullcontext():
        trace = _run_trace(job, strategy, model, run_dir) if saves and job.recovery.traced else None
        manager = None
        if saves:
            manager = _checkpoint_manager(job, strategy, preemption, on_event, model, run_dir, trace)
        with trace.kept() if trace else contextlib.nullcontext():
            return _train(job, strategy, reporter, model, [*warm_up, *callbacks, reporter], manager, trace)


def _train(
    job: Job,
    strategy: WorkerStrategy,
    reporter: Reporter,
    model: keras.Model,
    callbacks: list[keras.callbacks.Callback],
    manager: CheckpointManager | None,
    trace: RunTrace | None,
) -> Training:
    reader = Reader(job, strategy)
    # Keras ends an epoch of known length before the pass of its data ends, and would then repeat the pass.
    of_known_size = manager is not None and not runs_own_loop(model)
    data = training_data(job, reader, manager, of_known_size=of_known_size)
    check_data(model, data.element_spec)
    validation = validation_data(job, reader)
    strategy.prepare(model, data)
    weigh = weigh_classes(job.class_weight, data.element_spec)
    times = StepTimes(strategy.collectives, _not_measured(strategy, model))
    reporter.begin(job, data)
    started = time.monotonic()
    train_model = functools.partial(fit, trace=trace) if runs_own_loop(model) else fit_by_keras
    history = train_model(
        model, data, epochs=job.all_epochs, validation=validation, callbacks=callbacks,
        on_steps=reporter.on_steps, weigh=weigh, manager=manager, times=times,
    )  # fmt: skip
    seconds, xla = time.monotonic() - started, compiled_by_xla(model)
    parts = times.finish()
    if strategy.is_chief:
        warn_if_slower_than_one(parts, strategy.collectives)
    if strategy.variables_are_remote:
        model = copy_here(job, model, data, callbacks)
    return Training(
        model=model, history=history_of(history), inputs=input_spec(data), seconds=seconds,
        communication=strategy.communication,
        described=describe_model(model) if isinstance(job.model, RFunction) else None, times=parts,
        differences=list(_differences(model)), xla=xla,
        form=reader.form,
    )  # fmt: skip


def _differences(model: keras.Model) -> list[str]:
    """Return the list to which the strategy adds why the result is not that of one worker."""
    found: list[str] = getattr(model.distribute_strategy.extended, "differences", [])
    return found


def _not_measured(strategy: WorkerStrategy, model: keras.Model) -> set[str]:
    """Return the parts of the time that this worker cannot measure; see ``step_times.py``."""
    parts = set() if runs_own_loop(model) else {"waiting_for_data"}
    within = model.distribute_strategy.num_replicas_in_sync > 1 or strategy.layers_are_apart
    if strategy.collectives is None and within:
        parts |= {"waiting_for_peers", "exchanging"}
    return parts


def training_data(
    job: Job, reader: Reader, manager: CheckpointManager | None, *, of_known_size: bool
) -> WorkerData:
    """Return this worker's batches, from the first step of the training on."""
    if manager and manager.found:
        found = reader.training_data(manager.first_step)
        if isinstance(found.made, FedBatches) and found.steps is None:  # each iteration is a pass
            found.made.skip_passes(manager.start.step)
        return found
    data = None if job.steps_per_epoch else reader.training_data(of_known_size=of_known_size)
    # If the number of steps is unknown, the data begins with its first pass.
    first = job.initial_epoch * (job.steps_per_epoch or (data.steps if data else None) or 0)
    if manager:
        manager.schedule.begin_after(first)
    return data if data and not first else reader.training_data(first)


def validation_data(job: Job, reader: Reader) -> WorkerData | None:
    """Return this worker's batches for the validation; None if there is none."""
    if job.validation is None:
        return None
    assert not isinstance(job.validation, FunctionByName)  # Job.load() has replaced it
    return reader.data_in_order(job.validation, job.validation_steps, "validation_data")


def _saves(job: Job, strategy: WorkerStrategy, model: keras.Model, on_event: OnEvent) -> bool:
    """Return whether a job has checkpoints; an error if the model cannot have those that are asked for."""
    every = job.recovery.every
    if every is None:
        return False
    received = None
    if strategy.collectives is None and strategy.num_workers > 1:
        received = "workers with several devices each"
    elif "fit" in tf_internals.changes_of_keras_loop(model) and not job.recovery.asked:
        received = "a model with its own fit()"  # which may do anything
    elif every != "epoch" and not runs_own_loop(model):
        received = f"checkpoint_every={every}, and a model that Keras's own loop trains"
    if received is not None and job.recovery.asked:
        raise ArgumentError(
            "Checkpoints need one device of each worker; those within an epoch need the loop of "
            "distributed_fit().",
            received=received,
            fix='Pass checkpoint_every="epoch" if the model has another loop; start a process for each '
            "device.",
        )
    if received is not None:
        log.warning("There are no checkpoints of %s: each restart trains from the start.", received)
        on_event("unsaved")
    return received is None


def _checkpoint_manager(
    job: Job,
    strategy: WorkerStrategy,
    preemption: Preemption,
    on_event: OnEvent,
    model: keras.Model,
    run_dir: Path | None,
    trace: RunTrace | None,
) -> CheckpointManager:
    """Return the checkpoint manager of a job, which writes the trace before each checkpoint."""

    def before_save(when: str) -> None:
        check_agreement(extended_of(model), when)
        if trace:
            trace.write()

    every = job.recovery.every
    assert every is not None
    assert run_dir is not None or not strategy.is_chief
    folder = CheckpointFolder(Path())
    if strategy.is_chief and run_dir is not None:
        folder = checkpoints(run_dir, job.recovery.keep)
    return CheckpointManager(
        folder, every, preemption, collectives=strategy.collectives, others=strategy.variables_beside(),
        on_event=on_event, parts=parts_of_run(model),
        kernels=describe_kernels() if strategy.is_chief else None,
        before_save=before_save,
    )  # fmt: skip


def _run_trace(
    job: Job, strategy: WorkerStrategy, model: keras.Model, run_dir: Path | None
) -> RunTrace | None:
    """Return the trace of a run; None of models that Keras's own loop trains."""
    if not runs_own_loop(model):
        return None
    if not strategy.is_chief:
        return RunTrace(StepTrace(model), None)
    data = job.source.digest() if isinstance(job.source, Arrays) else None
    return RunTrace(
        StepTrace(model), run_dir, stops=job.recovery.nan is not None, workers=strategy.num_workers,
        epochs=job.epochs, data=data, kernels=describe_kernels(), versions=versions(),
        differences=_differences(model),
    )  # fmt: skip

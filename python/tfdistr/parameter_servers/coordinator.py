"""The training by the chief of parameter servers: Keras's ``fit``, with steps that workers compute."""

from __future__ import annotations

import contextlib
import gc
import logging
import time
import uuid
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.checkpoint.folder import CheckpointFolder
from tfdistr.checkpoint.manager import CheckpointManager
from tfdistr.checkpoint.preemption import Preemption
from tfdistr.collectives.comparison import parts_of_run
from tfdistr.data.pipeline.worker_data import WorkerData
from tfdistr.errors import ArgumentError
from tfdistr.parameter_servers.dispatch import Dispatcher
from tfdistr.parameter_servers.feed import TRAINING, VALIDATION, WorkerBatch, describe_job, look_at
from tfdistr.parameter_servers.gradients import GradientStep, StepOutcome
from tfdistr.parameter_servers.updates import OneByOne, Report, StepsReporter, Together
from tfdistr.r.functions import RFunction
from tfdistr.rendezvous.config import ClusterConfig
from tfdistr.servers.chief import dismiss_servers, join_servers
from tfdistr.servers.server_task import lost_server
from tfdistr.strategies.build import build
from tfdistr.strategies.worker_strategy import OneProcessStrategy
from tfdistr.training.described_model import describe_model
from tfdistr.training.epochs import CallbackList, OnSteps, Phase, numbers_of, run_epochs
from tfdistr.training.job import Job
from tfdistr.training.job_data import weigh_classes
from tfdistr.training.learning_rate import scale_learning_rate
from tfdistr.training.reporter import REPORT_INTERVAL as METRICS_INTERVAL
from tfdistr.training.reporter import OnEvent, history_of
from tfdistr.training.step_times import StepTimes
from tfdistr.training.trained_model import Training, build_model, copy_here, input_spec, make_callbacks
from tfdistr.training.watchdog import Watchdog, progress

log = logging.getLogger("tfdistr")

#: Seconds between two reports of each worker's number of steps.
REPORT_INTERVAL = 1.0


def train_on_servers(
    job: Job,
    config: ClusterConfig,
    on_event: OnEvent,
    *,
    run_dir: Path | None = None,
    strategy: tf.distribute.experimental.ParameterServerStrategy | None = None,
    checkpoints: CheckpointFolder | None = None,
    preemption: Preemption | None = None,
) -> Training:
    """Train the job's model as the chief of a cluster with parameter servers, and then dismiss the servers.

    A step uses one batch of ``batch_size`` examples. An epoch has as many steps as one pass over the data, or
    ``steps_per_epoch``, over all workers together. With "async" one worker computes each step, on a whole
    batch; with "sync" each batch is split over the workers.
    """
    strategy = strategy or join_servers(config, job.start_timeout)
    on_event("ready")
    try:
        preemption = preemption or Preemption()
        watchdog = Watchdog(job.recovery.step_timeout, _Watched())
        with watchdog, preemption if checkpoints else contextlib.nullcontext():
            chief = _Chief(job, config, strategy, on_event, run_dir)
            trained = chief.train(chief.manager(checkpoints, preemption) if checkpoints else None)
        # The variables can be deleted only as long as their servers run.
        del chief
        gc.collect()
        return trained
    except tf.errors.OpError as error:
        lost = lost_server(error, config)
        if lost is None:
            raise
        raise lost from error
    finally:
        dismiss_servers(config)


class _Watched(OneProcessStrategy):
    """The chief from the watchdog's view: one process, whose workers have no watchdog."""

    title = "the chief"


class _Chief:
    """The chief of one job."""

    def __init__(
        self,
        job: Job,
        config: ClusterConfig,
        strategy: tf.distribute.experimental.ParameterServerStrategy,
        on_event: OnEvent,
        run_dir: Path | None,
    ) -> None:
        self._job, self._on_event = job, on_event
        self._workers = config.num_workers
        keras.utils.set_random_seed(job.seed)
        with strategy.scope():
            self._model = build_model(job)
            _refuse_loop(self._model, validates=job.validation is not None)
            warm_up = scale_learning_rate(self._model.optimizer, job.learning_rate_factor, job.warmup_epochs)
            callbacks, self._reporter = make_callbacks(job, on_event, chief=True)
            self._callbacks = [*warm_up, *callbacks]
        self._data = look_at(job, TRAINING)
        self._validation = look_at(job, VALIDATION) if job.validation is not None else None
        build(self._model, self._data)
        _refuse_calls(self._model)
        steps = [data.steps if data else None for data in (self._data, self._validation)]
        described = describe_job(job, run_dir, steps)
        self._name = tf.constant(uuid.uuid4().hex)
        with strategy.scope():
            # Each worker fetches it on demand, also a replacement.
            self._described = tf.Variable(described, dtype=tf.string, trainable=False, name="job")
        self._report = Report(self._workers)
        self._dispatcher = Dispatcher(strategy)

    def manager(self, folder: CheckpointFolder, preemption: Preemption) -> CheckpointManager:
        """Return the checkpoint manager of this training, for ``folder``."""
        every, steps = self._job.recovery.every, self._data.steps
        assert every is not None
        assert steps is not None
        manager = CheckpointManager(
            folder, every, preemption, on_event=self._on_event, parts=parts_of_run(self._model)
        )  # fmt: skip
        if not manager.found:
            manager.schedule.begin_after(self._job.initial_epoch * steps)
        return manager

    def train(self, manager: CheckpointManager | None = None) -> Training:
        """Train, and copy the model to this process."""
        job, model, data, reporter = self._job, self._model, self._data, self._reporter
        steps_reporter = StepsReporter(self._report, self._on_event)
        times = StepTimes(unknown={"waiting_for_peers", "exchanging", "waiting_for_data"})
        listed = CallbackList(
            [*self._callbacks, reporter, self._report, steps_reporter], add_history=True,
            epochs=job.epochs, steps=data.steps, verbose=0, model=model, times=times,
        )  # fmt: skip

        def on_steps(done: int, logs: object) -> None:
            reporter.on_steps(done, logs)
            steps_reporter.tell(REPORT_INTERVAL)

        train = _CoordinatorPhase(model, "train", self._updates(), data, listed, manager, on_steps)
        test = None
        if self._validation:
            test = _CoordinatorPhase(model, "test", self._tests(), self._validation, listed)
        reporter.begin(job, data)
        started = time.monotonic()
        run_epochs(model, job.all_epochs, listed, train, test, manager)
        seconds, parts = time.monotonic() - started, times.finish()
        trained = copy_here(job, model, data, listed.callbacks)
        return Training(
            model=trained,
            history=history_of(dict(model.history.history)),
            inputs=input_spec(data),
            seconds=seconds,
            communication="none",
            described=describe_model(trained) if isinstance(job.model, RFunction) else None,
            report=self._report.numbers(),
            times=parts,
            form=data.form or job.form,
        )

    def _updates(self) -> OneByOne | Together:
        job, spec = self._job, self._data.element_spec
        weigh = weigh_classes(job.class_weight, spec)
        one_by_one = job.options.get("update", "async") == "async"
        split = not one_by_one and self._workers > 1
        if split:
            note_batch_normalization(self._model)
        step, batch = GradientStep(self._model, "train", weigh, split), self._batch(TRAINING, spec)
        if one_by_one:
            return OneByOne(self._dispatcher, step, batch, self._workers, self._model, self._report)
        wanted = job.options.get("replicas_to_aggregate") or self._workers
        return Together(
            self._dispatcher, step, batch, self._workers, self._model, self._report, wanted, self._data.arrays
        )

    def _tests(self) -> OneByOne:
        assert self._validation is not None
        batch = self._batch(VALIDATION, self._validation.element_spec)
        return OneByOne(self._dispatcher, GradientStep(self._model, "test"), batch, self._workers)

    def _batch(self, kind: int, spec: object) -> Any:
        return lambda place: WorkerBatch(kind, place, self._described, self._name, spec)


def _refuse_loop(model: keras.Model, *, validates: bool) -> None:
    """Refuse a model that replaces a part of Keras's training loop, which would not be called."""
    needed = {"fit", "make_train_function", *(["evaluate", "make_test_function"] if validates else [])}
    replaced = [name for name in tf_internals.changes_of_keras_loop(model) if name in needed]
    if replaced:
        raise ArgumentError(
            "With parameter servers, a model cannot have its own training loop, only a train_step and a "
            "test_step.",
            received=" and ".join(f"{type(model).__name__}.{name}()" for name in replaced),
            fix='Move the code into train_step() and test_step(), or use strategy="multi_worker_mirrored".',
        )


def note_batch_normalization(model: keras.Model) -> None:
    """Warn that each share of a batch is normalized separately."""
    kind = keras.layers.BatchNormalization
    layers = [layer.name for layer in tf_internals.all_layers(model) if isinstance(layer, kind)]
    if layers:
        log.warning(
            "%s: each worker normalizes with the rows of its share of a batch, also with synchronized=True, "
            "so the result is not that of one worker.",
            ", ".join(layers),
        )


def _refuse_calls(model: keras.Model) -> None:
    """Make these methods raise an error in callbacks; Keras would fail in its input pipeline."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise ArgumentError(
            "A callback cannot train, evaluate or predict while the variables are on parameter servers.",
            received="a call of fit(), evaluate() or predict()",
            fix="Pass `validation_data`, or call it on the model of the result.",
        )

    for name in ("fit", "evaluate", "predict"):
        setattr(model, name, refuse)


class _CoordinatorPhase(Phase):
    """The steps that the chief makes workers compute. It adds up their metrics."""

    def __init__(
        self,
        model: keras.Model,
        kind: str,
        updates: OneByOne | Together,
        data: WorkerData,
        callbacks: CallbackList,
        manager: CheckpointManager | None = None,
        on_steps: OnSteps = lambda done, logs: None,
    ) -> None:
        super().__init__(model, kind, data.steps, callbacks, manager, on_steps)
        self._updates = updates
        self._reported = 0.0
        self._first = 0  # the number of steps before this epoch; workers read each batch by its number
        self._sums: list[Any] = []
        self._last: dict[str, Any] = {}

    def reset(self) -> None:
        """Set the sums of the metrics to zero."""
        self._sums = [np.zeros(v.shape, v.dtype) for v in self.model.metrics_variables]

    def finish(self) -> None:
        """Wait for late gradients. An optimizer that averages the weights then sets the averages."""
        if isinstance(self._updates, Together):
            self._updates.settle()
        if self.model.optimizer is not None:
            with self.model.distribute_strategy.scope():
                self.model.optimizer.finalize_variable_values(self.model.trainable_weights)

    def begin(self, epoch: int, done: int) -> None:
        assert self.steps is not None
        self._first = epoch * self.steps if self.kind == "train" else 0
        self._reported = time.monotonic()
        if done:  # the checkpoint has the sums of these steps
            self._sums = [variable.numpy() for variable in self.model.metrics_variables]

    def make(self, count: int) -> bool:
        before = self.done
        stop = "stop_training" if self.kind == "train" else "stop_evaluating"

        def begin(step: int) -> None:
            if self.by_batch:
                self.batch_begins(before + step)

        def end(made: int, outcomes: list[StepOutcome]) -> bool:
            progress()
            if self.kind == "train":
                self.callbacks.times.step_done()
            self.done = before + made
            for outcome in outcomes:
                self._sums = [a + b for a, b in zip(self._sums, outcome.metrics, strict=True)]
            self._last = outcomes[-1].logs
            if self.by_batch:
                self.batch_ended(self.done - 1, self.logs())
            now = time.monotonic()
            if now - self._reported > METRICS_INTERVAL:
                self._reported = now
                self.on_steps(self.done, self.logs())
            return not getattr(self.model, stop)

        self._updates.run(self._first + before, count, begin, end, one_by_one=self.by_batch)
        return True

    def logs_to_keep(self) -> Any:
        self.logs()  # the checkpoint takes the sums from the variables; no step is under way now

    def logs(self) -> dict[str, Any]:
        for variable, value in zip(self.model.metrics_variables, self._sums, strict=True):
            variable.assign(value)
        return numbers_of(tf_internals.metrics_or_logs(self.model, self._last))

"""The training loop of ``distributed_fit()``: Keras's ``fit``, without the waits of its loop.

``model.train_step`` runs many times in one TensorFlow call, unless a callback needs a call after each batch.
The loop never waits for a peer: the number of steps is known, and the logs of a step are the worker's own.
The metrics of an epoch are read once, by all workers together. Workers may differ in the number of steps per
call. An epoch has its number of steps even if ``steps_per_execution`` does not divide it.
"""

from __future__ import annotations

import contextlib
from typing import Any

import keras

from tfdistr import tf_internals
from tfdistr.checkpoint.manager import CheckpointManager
from tfdistr.data.pipeline.worker_data import WorkerData
from tfdistr.strategies.build import build
from tfdistr.strategies.exact.batch_check import check_batch
from tfdistr.strategies.exact.nan_inputs import InputWatch
from tfdistr.strategies.xla import without_xla
from tfdistr.training.epochs import CallbackList, OnSteps, Phase, numbers_of, run_epochs
from tfdistr.training.fit_by_keras import check_read_by_keras
from tfdistr.training.job import EpochRange
from tfdistr.training.run_trace import RunTrace
from tfdistr.training.step_blocks import Step, Steps, extended_of
from tfdistr.training.step_times import StepTimes
from tfdistr.training.watchdog import progress


def runs_own_loop(model: keras.Model) -> bool:
    """Return whether ``fit`` can train a model: it has Keras's own loop, and one replica."""
    extended = extended_of(model)
    one = extended.one_replica if extended else model.distribute_strategy.num_replicas_in_sync == 1
    return one and not tf_internals.changes_of_keras_loop(model)


def fit(
    model: keras.Model,
    data: WorkerData,
    *,
    epochs: EpochRange,
    validation: WorkerData | None,
    callbacks: list[keras.callbacks.Callback],
    on_steps: OnSteps,
    weigh: Step | None = None,
    manager: CheckpointManager | None = None,
    times: StepTimes | None = None,
    trace: RunTrace | None = None,
) -> dict[str, list[Any]]:
    """Train a model, made in the scope of its strategy, as Keras's ``fit`` would; return the logs of epochs.

    ``data`` begins with the first step that is made. ``weigh`` is applied to each batch of the training, in
    the graph. ``manager`` counts the steps that ``trace`` records.
    """
    found = bool(manager and manager.found)
    extended = extended_of(model)
    watch = None if extended and extended.collectives else InputWatch()  # workers with peers watch them
    callbacks = [*callbacks, *([_InputReport(watch)] if watch else [])]
    listed = _prepare(model, data, validation, callbacks, epochs=epochs.end, found=found, times=times)
    if extended:
        check_batch(extended, model, data.look, weigh)
        if validation and tf_internals.overrides(model, "test_step"):
            check_batch(extended, model, validation.look, kind="test")
    train = _LoopPhase(model, "train", data, listed, weigh, manager, on_steps, watch, trace)
    test = _LoopPhase(model, "test", validation, listed) if validation else None
    run_epochs(model, epochs, listed, train, test, manager)
    return dict(model.history.history)


def evaluate_model(model: keras.Model, data: WorkerData) -> dict[str, Any]:
    """Evaluate ``model`` as its own ``evaluate`` would; returns the metrics over all workers' batches."""
    if not runs_own_loop(model):
        check_read_by_keras(data)
        return dict(model.evaluate(data.dataset, steps=data.steps, verbose=0, return_dict=True))
    listed = _prepare(model, data, None, [])
    extended = extended_of(model)
    if extended:
        check_batch(extended, model, data.look, kind="test")
    test = _LoopPhase(model, "test", data, listed)
    test.reset()
    return test.run(0, 0)


def _prepare(
    model: keras.Model,
    data: WorkerData,
    validation: WorkerData | None,
    callbacks: list[keras.callbacks.Callback],
    *,
    epochs: int | None = None,
    found: bool = False,
    times: StepTimes | None = None,
) -> CallbackList:
    """Build the model, and make all workers ready for its steps."""
    training = epochs is not None
    extended = extended_of(model)
    calls = extended.calls if extended else None
    if calls:
        calls.prepare(model, callbacks)
    elif extended and extended.virtual:
        without_xla(model)
    # A checkpoint has the variables of each optimizer. A user's test step may not make the metrics.
    if extended or found or (not training and tf_internals.overrides(model, "test_step")):
        build(model, data, optimizer=extended is not None, training=training)
    listed = CallbackList(
        callbacks, add_history=training, epochs=epochs, steps=data.steps, verbose=0, model=model, times=times
    )
    if calls:
        fields = {
            "steps_per_epoch": data.steps,
            "examples are read": _how_read(data),
            "validation_steps": validation.steps if validation else "none",
            "validation examples are read": _how_read(validation) if validation else "none",
        }
        calls.ready(model, listed, data.element_spec, fields, training=training)
    return listed


class _InputReport(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that reports missing values in the inputs."""

    decides = False
    remembers = False

    def __init__(self, watch: InputWatch) -> None:
        super().__init__()
        self._watch = watch

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self._watch.warn(self._watch.describe())


class _LoopPhase(Phase):
    """The steps that this worker makes, many in one TensorFlow call."""

    def __init__(
        self,
        model: keras.Model,
        kind: str,
        data: WorkerData,
        callbacks: CallbackList,
        weigh: Step | None = None,
        manager: CheckpointManager | None = None,
        on_steps: OnSteps = lambda done, logs: None,
        watch: InputWatch | None = None,
        trace: RunTrace | None = None,
    ) -> None:
        super().__init__(model, kind, data.steps, callbacks, manager, on_steps)
        self._trace, self._epoch = trace, 0
        self._made = Steps(
            model, getattr(model, f"{kind}_step"), data, weigh, callbacks.times, watch,
            trace.steps if trace else None,
        )  # fmt: skip
        self.execution = int(model.steps_per_execution)
        self._last: Any = {}

    @property
    def pace(self) -> int:
        return self.execution if self.by_batch else max(self.execution, self._made.pace)

    def skip(self, epochs: int) -> None:
        self._made.skip(epochs, self.steps)
        super().skip(epochs)

    def reset(self) -> None:
        """Reset the metrics. TensorFlow reads each of their variables for this, without the peers."""
        extended = extended_of(self.model)
        with extended.within(local_only=True) if extended else contextlib.nullcontext():
            self.model.reset_metrics()

    def finish(self) -> None:
        """Make an optimizer that averages the weights store the average in the weights."""
        optimizer = self.model.optimizer
        if isinstance(optimizer, keras.optimizers.Optimizer):
            optimizer.finalize_variable_values(self.model.trainable_weights)

    def begin(self, epoch: int, done: int) -> None:
        if self.kind == "test" or self.steps is None:  # otherwise the training continues in its data
            self._made.rewind()
        self._epoch = epoch
        # If a checkpoint is at the end of data of unknown length, no step follows it.
        self._last = self.manager.logs if self.manager and done else {}

    def make(self, count: int) -> bool:
        if self.by_batch:
            self.batch_begins(self.done)
        made, logs = self._made.run(count)
        progress()
        if made:
            if self.kind == "train":
                self.callbacks.times.step_done()
            if self._trace and self.manager:
                first = self.manager.schedule.total + self.done + 1
                self._trace.add(self._epoch, first, self._made.traced())
            self.done, self._last = self.done + made, logs
            if self.by_batch:
                self.batch_ended(self.done - 1, logs)
            self.on_steps(self.done, logs)
        return made == count

    def logs_to_keep(self) -> object:
        return self._last if self.steps is None else None

    def logs(self) -> dict[str, Any]:
        extended = extended_of(self.model)
        if extended is None or extended.collectives is None:
            return numbers_of(tf_internals.metrics_or_logs(self.model, self._last))
        sums = extended.read_together(self.model.metrics_variables)
        with extended.within(sums=sums, kind=self.kind):
            return numbers_of(tf_internals.metrics_or_logs(self.model, self._last))


def _how_read(data: WorkerData) -> str:
    return "by index" if data.arrays else "in order"

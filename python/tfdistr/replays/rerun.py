"""The steps of a run again, in this process, up to one of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.checkpoint.folder import Array, Checkpoint, CheckpointFolder, Position
from tfdistr.checkpoint.manager import CheckpointManager
from tfdistr.checkpoint.preemption import Preemption
from tfdistr.checkpoint.schedule import Schedule
from tfdistr.checkpoint.trace import TracedStep
from tfdistr.checkpoint.variables import Variable, all_finite, values_of, variables_of
from tfdistr.collectives.comparison import parts_of_run
from tfdistr.data.pipeline.worker_data import WorkerData
from tfdistr.data.readers.described import FileDataset
from tfdistr.errors import ArgumentError
from tfdistr.r.functions import begin_with_seed
from tfdistr.strategies.build import build
from tfdistr.strategies.exact.step_trace import StepTrace
from tfdistr.strategies.virtual.operations import random_operations
from tfdistr.strategies.virtual.rounding import describe_kernels
from tfdistr.strategies.worker_strategy import WorkerStrategy
from tfdistr.training.job import Job
from tfdistr.training.job_data import Reader, weigh_classes
from tfdistr.training.learning_rate import scale_learning_rate
from tfdistr.training.loop import fit
from tfdistr.training.run_trace import RunTrace
from tfdistr.training.train import training_data, validation_data
from tfdistr.training.trained_model import build_model


@dataclass
class Rerun:
    """The model and the values of a step that was made again.

    Attributes:
        model: The model after the step.
        batch: The rows of the step, in the structure that Keras's step gets.
        indices: The indices of these rows in the data; None if they have none.
        places: The file of each row and its number there; empty if the data is not of files.
        steps: The steps that were made, as a trace has them.
        gradients: The gradients that optimizers got in the last step, by the path of the weight.
        before: All variables before the last step.
        after: The same after it.
    """

    model: keras.Model
    batch: Any
    indices: Array | None
    places: list[tuple[str, int | None]] = field(default_factory=list)
    steps: list[TracedStep] = field(default_factory=list)
    gradients: dict[str, Array] = field(default_factory=dict)
    before: list[Array] = field(default_factory=list)
    after: list[Array] = field(default_factory=list)

    @property
    def variables(self) -> list[Variable]:
        """The variables of ``before`` and ``after``."""
        return variables_of(self.model)

    @property
    def is_finite(self) -> bool:
        """Return whether the weights after the step are finite."""
        return not self.odd_weights(self.after)

    def odd_weights(self, values: Sequence[Array]) -> list[str]:
        """Return the weights that are not finite among the values. A constant may be infinite."""
        trained = {weight.path for weight in self.model.trainable_variables}
        before, after = self.weights(self.before), self.weights(self.after)
        constant = {
            name for name in before.keys() - trained if before[name].tobytes() == after[name].tobytes()
        }
        return [
            name
            for name, value in self.weights(values).items()
            if not all_finite(value) and (name not in constant or np.isnan(value).any())
        ]

    def weights(self, values: Sequence[Array]) -> dict[str, Array]:
        """Return the weights of the model among the values of its variables, by their paths."""
        paths = {weight.path for weight in self.model.weights}
        pairs = zip(self.variables, values, strict=True)
        return {variable.name: value for variable, value in pairs if variable.name in paths}

    def rewind(self) -> None:
        """Give the model the state from before the last step."""
        for variable, value in zip(self.variables, self.before, strict=True):
            variable.own.assign(value)


class _Reached(Exception):
    """The step is made."""


class _OneCheckpoint(CheckpointFolder):
    """The checkpoint from which a rerun starts; None for the start of the training. Nothing is written."""

    def __init__(self, folder: CheckpointFolder, checkpoint: Checkpoint | None) -> None:
        super().__init__(folder.path, folder.job)
        self._checkpoint = checkpoint

    def newest(self) -> Checkpoint | None:
        """Return the checkpoint."""
        return self._checkpoint


class _Until(Schedule):
    """A schedule that pauses before a step, and has no checkpoints."""

    def __init__(self, schedule: Schedule, done: int, target: int, before: Callable[[], None]) -> None:
        super().__init__("epoch", schedule.total, done)
        self._target, self._before = target, before

    def until(self, done: int) -> int:
        """Return the number of steps until the step, or 1 for the step itself."""
        left = self._target - 1 - self.total - done
        if left <= 0:
            self._before()
        return max(1, left)


class _Rewound(CheckpointManager):
    """Restores a checkpoint, and saves none; the rerun ends where the one at ``end`` would be saved."""

    end: Position | None = None

    def after_steps(
        self, model: keras.Model, callbacks: Sequence[object], epoch: int, done: int, logs: object = None
    ) -> None:
        """End here, or do nothing."""
        if self.end == (epoch, done):
            raise _Reached

    def after_epoch(self, model: keras.Model, callbacks: Sequence[object], epoch: int, done: int) -> None:
        """Count the steps, and end here if this is the end."""
        self.schedule.total += done
        if self.end == (epoch + 1, 0):
            raise _Reached


class _Gradients(StepTrace):
    """Records the values of steps, and keeps the gradients of the last one.

    Args:
        from_start: Whether the rerun makes the first step of the training.
    """

    def __init__(self, model: keras.Model, from_start: bool) -> None:
        super().__init__(model, self._keep)
        self._model, self._from_start = model, from_start
        self.kept: dict[str, tf.Variable] = {}

    def _keep(self, number: int, gradients: Sequence[Any], variables: Any) -> None:
        optimizer = self.optimizers[number]
        weights = tf_internals.trained_variables(optimizer) if variables is None else variables
        for gradient, weight in zip(gradients, weights, strict=False):
            if gradient is not None:
                dense = tf.convert_to_tensor(gradient)
                name = f"{weight.path} {number}"
                if name not in self.kept:
                    with tf.init_scope():
                        zeros = np.zeros(weight.shape, dense.dtype.as_numpy_dtype)
                        self.kept[name] = tf.Variable(zeros, trainable=False)
                self.kept[name].assign(dense)

    def values(self) -> tf.Tensor:
        """Return the values of the step; refuse a step whose random numbers no checkpoint has."""
        found = [] if tf.executing_eagerly() else random_operations(tf.compat.v1.get_default_graph())
        if found and not self._from_start:
            raise ArgumentError(
                "A step can be replayed if its random numbers depend on Keras seeds.",
                received=f"the operation {found[0][0]} ({found[0][1]}), as of tf.random",
                fix="Use keras.random with a keras.random.SeedGenerator, or replay a step before the first "
                "checkpoint.",
            )
        return super().values()


class _Recorded(RunTrace):
    """Records the steps of a rerun."""

    def __init__(self, steps: _Gradients) -> None:
        super().__init__(steps, None)
        self.found: list[TracedStep] = []

    def add(self, epoch: int, first: int, values: Sequence[object]) -> None:
        """Add the values of steps of an epoch."""
        if values:
            self.found += self._steps(epoch, first, values)


def rerun(
    job: Job,
    strategy: WorkerStrategy,
    folder: CheckpointFolder,
    checkpoint: Checkpoint | None,
    step: int,
    callbacks: Sequence[keras.callbacks.Callback],
    check: Callable[[keras.Model, Sequence[str]], None],
    end: Position | None = None,
) -> Rerun:
    """Make the steps of a run from a checkpoint to ``step``, as ``train`` makes them.

    Args:
        check: Called with the model and the names of the states of callbacks; it may refuse them.
        end: The position of the checkpoint that is saved after ``step``: the rerun ends where the training
            has saved it, which is after the callbacks of an epoch. None: it ends with the step.
    """
    strategy.gradient_dtype = job.gradient_dtype
    begin_with_seed(job.functions, job.seed)
    keras.utils.set_random_seed(job.seed)
    with strategy.scope():
        model = build_model(job)
        warm_up = scale_learning_rate(model.optimizer, job.learning_rate_factor, job.warmup_epochs)
    manager = _Rewound(
        _OneCheckpoint(folder, checkpoint), "epoch", Preemption(active=False), parts=parts_of_run(model),
        kernels=describe_kernels(), others=strategy.variables_beside(),
    )  # fmt: skip
    manager.end = end
    reader = Reader(job, strategy)
    data = training_data(job, reader, manager, of_known_size=False)
    strategy.prepare(model, data)
    check(model, list(manager.found.notes["callbacks"]) if manager.found else [])
    build(model, data)
    weigh = weigh_classes(job.class_weight, data.element_spec)
    result = Rerun(model, *_rows(Reader(job, strategy), weigh, step))
    result.places = _places(job, result.indices)
    trace = _Gradients(model, from_start=checkpoint is None)
    recorded = _Recorded(trace)

    def before() -> None:
        result.before = values_of(result.variables)

    def made(done: int, logs: object) -> None:
        if manager.schedule.total + done >= step + (end is not None):
            raise _Reached

    manager.schedule = _Until(manager.schedule, manager.start.step, step, before)
    try:
        fit(
            model, data, epochs=job.all_epochs, validation=validation_data(job, reader),
            callbacks=[*warm_up, *callbacks], on_steps=made, weigh=weigh, manager=manager, trace=recorded,
        )  # fmt: skip
    except _Reached:
        return _finished(result, recorded, trace)
    raise _other_data(step)


def _other_data(step: int) -> ArgumentError:
    return ArgumentError(
        "A step of a run must be made again by the same data and callbacks.",
        received=f"a training that ends before step {step}",
        fix="Pass the `x` and the `callbacks` of the run.",
    )


def _finished(result: Rerun, recorded: _Recorded, trace: _Gradients) -> Rerun:
    result.after = values_of(result.variables)
    result.steps = recorded.found
    result.gradients = {name.rpartition(" ")[0]: value.numpy() for name, value in trace.kept.items()}
    return result


def _rows(reader: Reader, weigh: Callable[[Any], Any] | None, step: int) -> tuple[Any, Array | None]:
    """Return the rows of a step, and their indices."""
    data: WorkerData = reader.training_data(step - 1)
    indices = None
    if data.arrays is not None:
        batch = tf.nest.map_structure(tf.constant, data.arrays.batch(step - 1))
        indices = data.arrays.indices(step - 1)
    elif data.steps is not None:
        batch = next(iter(data.dataset))
    else:  # the passes are not known before they are read, each by an iteration
        passes = itertools.repeat(reader.training_data().dataset, step)
        batch = next(itertools.islice(itertools.chain.from_iterable(passes), step - 1, None), None)
        if batch is None:
            raise _other_data(step)
    return weigh(batch) if weigh else batch, indices


def _places(job: Job, indices: Array | None) -> list[tuple[str, int | None]]:
    """Return the file and the row there of rows; nothing if the data is not of files."""
    if indices is None or not isinstance(job.source, FileDataset):
        return []
    files = job.source.open()
    return [files.place(int(index)) for index in indices]

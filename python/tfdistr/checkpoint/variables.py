"""The variables and the optimizers of a training on one worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.checkpoint.python_state import Array
from tfdistr.checkpoint.worker_arrays import ArrayPart
from tfdistr.errors import ArgumentError


class Variable(NamedTuple):
    """A variable of one worker.

    Attributes:
        is_part: Whether the worker has a part of a sum over the workers, as for metrics.
    """

    name: str
    own: tf.Variable
    is_part: bool = False


def variables_of(model: keras.Model) -> list[Variable]:
    """This worker's parts of all variables in the training of a built model, each with a name."""
    optimizers = [v for optimizer in tf_internals.optimizers_of(model) for v in optimizer.variables]
    generators = [*tf_internals.seed_generators(model), tf_internals.global_seed_generator()]
    seeds = [generator.state for generator in generators]
    found = [*model.variables, *model.metrics_variables, *optimizers, *seeds]
    unique = list({id(variable): variable for variable in found}.values())
    named = [(variable.path, variable.value) for variable in unique]
    parts = getattr(model.distribute_strategy, "virtual_workers", None) is None  # else all have the same
    return [Variable(name, own, parts and _is_sum(value)) for name, value in named for own in _parts(value)]


def values_of(variables: Sequence[Variable]) -> list[Array]:
    """Return the values of variables."""
    return [variable.own.read_value().numpy() for variable in variables]


def assign(variables: Sequence[Variable], values: Sequence[ArrayPart]) -> None:
    """Assign the values of a checkpoint to variables.

    If there are fewer workers now, the chief also gets the parts of the missing workers. If there are more,
    the new workers start with no part, and with new random numbers.

    Raises:
        ArgumentError: The values are of another model.
    """
    wrong = []
    if len(variables) != len(values):
        wrong = [f"{len(variables)} variables, where the checkpoint has {len(values)}"]
    for variable, part in zip(variables, values, strict=False):
        kind = _kind(variable.own.shape, variable.own.dtype.name)
        other = _kind(part.own.shape, part.own.dtype.name)
        if kind != other:
            wrong.append(f"{variable.name} of {kind}, where the checkpoint has {other}")
    if wrong:
        raise other_model(wrong[0])
    for variable, part in zip(variables, values, strict=True):
        if part.borrowed and (variable.is_part or (variable.own.dtype.is_integer and not part.alike)):
            continue
        value = part.own
        if variable.is_part and part.left is not None:
            value = value + part.left.sum(0, dtype=value.dtype)
        variable.own.assign(tf.constant(value))


def other_model(received: str) -> ArgumentError:
    """Return the error that the checkpoint is of another model."""
    return ArgumentError(
        "Cannot resume: the model differs from the saved run.",
        received=received,
        fix="Pass the `model` function of the run, or start a new run in another `run_dir`.",
    )


def _parts(value: Any) -> list[tf.Variable]:
    return list(value.values) if isinstance(value, tf.distribute.DistributedValues) else [value]


def _is_sum(value: Any) -> bool:
    distributed = isinstance(value, tf.distribute.DistributedValues)
    return distributed and value.aggregation == tf.VariableAggregation.SUM


def _kind(shape: Any, dtype: str) -> str:
    return f"{dtype} {tuple(shape)}"


#: For each optimizer the numbers of the variables that it trains, among those of the model; None if the
#: optimizer was not used.
Trained = Sequence[Sequence[int] | None]


def trained_by(model: keras.Model) -> list[list[int] | None]:
    """Return the variables that each optimizer trains."""
    numbers = {id(variable): number for number, variable in enumerate(model.variables)}
    trained: list[list[int] | None] = []
    for optimizer in tf_internals.optimizers_of(model):
        variables = tf_internals.trained_variables(optimizer) if optimizer.built else []
        strange = [variable.path for variable in variables if id(variable) not in numbers]
        if strange:
            raise ArgumentError(
                "Cannot save the state of an optimizer that trains variables outside the model.",
                received=f"{', '.join(strange)}, not in {type(model).__name__}.variables",
                fix="Make the layers with these variables attributes of the model.",
            )
        trained.append([numbers[id(variable)] for variable in variables] if optimizer.built else None)
    return trained


def build_optimizers(model: keras.Model, trained: Trained) -> None:
    """Make the variables of optimizers that were not used yet, from the result of ``trained_by``."""
    variables = model.variables
    for optimizer, numbers in zip(tf_internals.optimizers_of(model), trained, strict=False):
        if numbers is None or optimizer.built or max(numbers, default=0) >= len(variables):
            continue  # a different model is detected when the values are compared
        with model.distribute_strategy.scope():
            optimizer.build([variables[number] for number in numbers])

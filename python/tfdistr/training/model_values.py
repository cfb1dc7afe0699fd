"""The weights and the optimizer state of a model, as arrays that another model of its kind can take over."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfdistr.errors import ArgumentError

if TYPE_CHECKING:
    import keras

Arrays = list[np.ndarray[Any, Any]]


class OptimizerValues(NamedTuple):
    """The state of an optimizer.

    Attributes:
        values: Its variables.
        trained: The numbers of the model's variables that it trains; None if they are not known, or if it
            was not used.
    """

    values: Arrays
    trained: list[int] | None


def values_of(model: keras.Model) -> tuple[Arrays, OptimizerValues, list[OptimizerValues]]:
    """The weights of a model, and the state of its optimizer and of the others that it holds."""
    weights = [_storable(value) for value in model.get_weights()]
    own = _state_of(model, model.optimizer) if model.optimizer is not None else OptimizerValues([], None)
    return weights, own, [_state_of(model, optimizer) for optimizer in _others(model)]


def _state_of(model: keras.Model, optimizer: Any) -> OptimizerValues:
    return OptimizerValues(list(map(_storable, optimizer.variables)), _trained_numbers(model, optimizer))


def _others(model: keras.Model) -> list[Any]:
    from tfdistr import tf_internals

    return [optimizer for optimizer in tf_internals.optimizers_of(model) if optimizer is not model.optimizer]


def _trained_numbers(model: keras.Model, optimizer: Any) -> list[int] | None:
    from tfdistr import tf_internals

    if not optimizer.built:
        return None
    numbers = {id(variable): number for number, variable in enumerate(model.variables)}
    found = [numbers.get(id(variable)) for variable in tf_internals.trained_variables(optimizer)]
    return None if None in found else [number for number in found if number is not None]


def set_values(
    model: keras.Model,
    weights: Sequence[Any],
    optimizer: OptimizerValues,
    others: Sequence[OptimizerValues],
    inputs: Any,
) -> None:
    """Give a model the values of another one.

    Args:
        model: The model, which may be not built.
        weights: The weights of the other model.
        optimizer: The state of its optimizer.
        others: The state of the other optimizers that it holds.
        inputs: Shapes and types of a batch of inputs, with which the model can be built; see ``Training``.

    Raises:
        ArgumentError: The model has no ``call()``, and layers that are not built.
    """
    if not model.built:
        _build(model, inputs, len(weights))
    model.set_weights(weights)
    own = [] if model.optimizer is None else [(model.optimizer, optimizer)]
    for held, state in [*own, *zip(_others(model), others, strict=True)]:
        if len(state.values) != len(held.variables):  # else it is built, or was not used
            numbers, all_variables = state.trained, model.variables
            held.build(
                model.trainable_variables if numbers is None else [all_variables[n] for n in numbers]
            )
        for variable, value in zip(held.variables, state.values, strict=True):
            variable.assign(value)


def _build(model: keras.Model, inputs: Any, weights: int) -> None:
    import tensorflow as tf

    from tfdistr.strategies.build import build_by_step, has_call

    batch = map_inputs(inputs, tf.zeros)
    if has_call(model):
        model(batch)
    elif len(model.weights) < weights:
        with contextlib.suppress(Exception):  # the step may need targets, whose shapes are not known here
            build_by_step(model, (batch,) if isinstance(batch, tuple) else batch, optimizers=False)
    if len(model.weights) != weights:
        raise ArgumentError(
            "Cannot build the trained model here: some of its layers get their weights in a step only.",
            received=f"{type(model).__name__} with {len(model.weights)} of {weights} weights",
            fix="Build its layers in the model function, for example with keras.Input() in each network.",
        )
    model.built = True


def _storable(value: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "V" else array  # NumPy's files lack bfloat16


def map_inputs(inputs: Any, make: Callable[[list[int], str], Any]) -> Any:
    """The structure of ``Training.inputs``, with ``make(shape, type)`` in the place of each array."""
    if isinstance(inputs, dict):
        return {name: map_inputs(part, make) for name, part in inputs.items()}
    if len(inputs) == 2 and isinstance(inputs[1], str):
        return make(*inputs)
    return tuple(map_inputs(part, make) for part in inputs)

"""The weights and the optimizer state of a model, as arrays that another model of its kind can take over."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdistr.errors import ArgumentError

if TYPE_CHECKING:
    import keras

Arrays = list[np.ndarray[Any, Any]]


def values_of(model: keras.Model) -> tuple[Arrays, Arrays]:
    """The weights of a model, and the variables of its optimizer."""
    variables = model.optimizer.variables if model.optimizer is not None else ()
    return [_storable(value) for value in model.get_weights()], [_storable(value) for value in variables]


def trained_numbers(model: keras.Model) -> list[int] | None:
    """The variables that the optimizer of a model trains, by their numbers; None if this is not known."""
    from tfdistr import _private

    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not optimizer.built:
        return None
    numbers = {id(variable): number for number, variable in enumerate(model.variables)}
    found = [numbers.get(id(variable)) for variable in _private.trained_variables(optimizer)]
    return None if None in found else [number for number in found if number is not None]


def set_values(
    model: keras.Model,
    weights: Sequence[Any],
    optimizer: Sequence[Any],
    inputs: Any,
    trained: Sequence[int] | None = None,
) -> None:
    """Give a model the values of another one.

    Args:
        model: The model, which may be not built.
        weights: The weights of the other model.
        optimizer: The variables of its optimizer.
        inputs: Shapes and types of a batch of inputs, with which the model can be built; see ``Training``.
        trained: The result of ``trained_numbers`` of the other model.

    Raises:
        ArgumentError: The model has no ``call()``, and layers that are not built.
    """
    if not model.built:
        _build(model, inputs, len(weights))
    model.set_weights(weights)
    if model.optimizer is not None:
        if trained is not None:
            model.optimizer.build([model.variables[number] for number in trained])
        elif len(optimizer) != len(model.optimizer.variables):  # else it was not used
            model.optimizer.build(model.trainable_variables)
        for variable, value in zip(model.optimizer.variables, optimizer, strict=True):
            variable.assign(value)


def _build(model: keras.Model, inputs: Any, weights: int) -> None:
    import tensorflow as tf

    from tfdistr.strategies.build import build_by_step, has_call

    batch = map_inputs(inputs, tf.zeros)
    if has_call(model):
        model(batch)
        return
    if len(model.weights) < weights:
        with contextlib.suppress(Exception):  # the step may need targets, whose shapes are not known here
            build_by_step(model, (batch,) if isinstance(batch, tuple) else batch, optimizers=False)
    if len(model.weights) != weights:
        raise ArgumentError(
            "Cannot build the trained model here: it has no call(), and layers without weights.",
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

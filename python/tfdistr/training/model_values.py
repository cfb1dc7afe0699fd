"""The weights and the optimizer state of a model, as arrays that another model of its kind can take over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import keras

Arrays = list[np.ndarray[Any, Any]]


def values_of(model: keras.Model) -> tuple[Arrays, Arrays]:
    """The weights of a model, and the variables of its optimizer."""
    variables = model.optimizer.variables if model.optimizer is not None else ()
    return [_storable(value) for value in model.get_weights()], [_storable(value) for value in variables]


def set_values(model: keras.Model, weights: Sequence[Any], optimizer: Sequence[Any], inputs: Any) -> None:
    """Give a model the values of another one.

    Args:
        model: The model, which may be not built.
        weights: The weights of the other model.
        optimizer: The variables of its optimizer.
        inputs: Shapes and types of a batch of inputs, with which the model can be built; see ``Training``.
    """
    if not model.built:
        import tensorflow as tf

        model(map_inputs(inputs, tf.zeros))
    model.set_weights(weights)
    if model.optimizer is not None:
        if len(optimizer) != len(model.optimizer.variables):  # else it was not used
            model.optimizer.build(model.trainable_variables)
        for variable, value in zip(model.optimizer.variables, optimizer, strict=True):
            variable.assign(value)


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

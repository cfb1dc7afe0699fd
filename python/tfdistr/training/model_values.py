"""The weights and the optimizer state of a model, as arrays that another model of its kind can take over."""

from __future__ import annotations

from collections.abc import Sequence
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

        model(_zeros(inputs, tf))
    model.set_weights(weights)
    if model.optimizer is not None:
        model.optimizer.build(model.trainable_variables)
        for variable, value in zip(model.optimizer.variables, optimizer, strict=True):
            variable.assign(value)


def _storable(value: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "V" else array  # NumPy's files lack bfloat16


def _zeros(spec: Any, tf: Any) -> Any:
    if isinstance(spec, dict):
        return {name: _zeros(part, tf) for name, part in spec.items()}
    if len(spec) == 2 and isinstance(spec[1], str):
        return tf.zeros(spec[0], spec[1])
    return tuple(_zeros(part, tf) for part in spec)

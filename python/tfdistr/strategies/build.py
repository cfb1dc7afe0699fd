"""Creates the weights of a model before it trains."""

from __future__ import annotations

import keras
import tensorflow as tf

from tfdistr import _private
from tfdistr.data.element_shapes import batch_of_zeros, has_known_shapes
from tfdistr.data.pipeline import WorkerData


def build(model: keras.Model, data: tf.data.Dataset | WorkerData, *, optimizer: bool = True) -> None:
    """Create the model's weights and metrics before its step is traced, as Keras does under a strategy.

    With ``optimizer`` also the variables of its optimizer. Without, this leaves a model that cannot be called
    as it is: only its parts can be.
    """
    if not optimizer:
        if type(model).call is not keras.Model.call:
            with _private.overridden(model, "optimizer", None):
                build(model, data)
        return
    if has_known_shapes(data.element_spec):
        batch = batch_of_zeros(data.element_spec)
    else:
        batch = data.example if isinstance(data, WorkerData) else next(iter(data))
    with model.distribute_strategy.scope():
        _private.build(model, batch)

"""Creates the weights of a model before it trains."""

from __future__ import annotations

import keras
import tensorflow as tf

from tfdistr import _private
from tfdistr.data.element_shapes import batch_of_zeros, has_known_shapes
from tfdistr.data.fed_batches import FedBatches


def build(model: keras.Model, dataset: tf.data.Dataset | FedBatches, *, optimizer: bool = True) -> None:
    """Create the model's weights and metrics before its step is traced, as Keras does under a strategy.

    With ``optimizer`` also the variables of its optimizer. Without, this leaves a model that cannot be called
    as it is: only its parts can be.
    """
    if not optimizer:
        if type(model).call is not keras.Model.call:
            with _private.overridden(model, "optimizer", None):
                build(model, dataset)
        return
    if has_known_shapes(dataset):
        batch = batch_of_zeros(dataset.element_spec)
    else:
        batch = dataset.example if isinstance(dataset, FedBatches) else next(iter(dataset))
    with model.distribute_strategy.scope():
        _private.build(model, batch)

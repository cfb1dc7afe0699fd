"""The layers of a model that normalize with the rows of a batch."""

from __future__ import annotations

import keras

from tfdistr import tf_internals


def without_synchronization(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    """The layers ``BatchNormalization`` of a model that normalize with the rows of one worker only."""
    layers = tf_internals.all_layers(model)
    return [v for v in layers if isinstance(v, keras.layers.BatchNormalization) and not v.synchronized]

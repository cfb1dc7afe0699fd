"""A variational autoencoder, as keras.io writes it, small."""

from __future__ import annotations

from typing import Any

import keras
from zoo import DRAWS, compiled, images, zoo

layers, ops = keras.layers, keras.ops
IMAGES = images(16)


class Sampling(layers.Layer):
    """A point near the mean, and the divergence from a normal distribution as a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, inputs: Any) -> Any:
        mean, log_variance = inputs
        divergence = 1 + log_variance - ops.square(mean) - ops.exp(log_variance)
        self.add_loss(-0.5 * ops.mean(ops.sum(divergence, axis=1)))
        return mean + ops.exp(0.5 * log_variance) * keras.random.normal(ops.shape(mean), seed=self.seeds)


@zoo(data=(IMAGES, IMAGES), only_virtual=DRAWS)
def variational_autoencoder():
    inputs = keras.Input((16, 16, 3))
    x = layers.Conv2D(8, 3, 2, "same", activation="relu")(inputs)
    x = layers.Dense(8, "relu")(layers.Flatten()(layers.Conv2D(8, 3, 2, "same", activation="relu")(x)))
    x = Sampling()([layers.Dense(2)(x), layers.Dense(2)(x)])
    x = layers.Reshape((4, 4, 8))(layers.Dense(128, "relu")(x))
    x = layers.Conv2DTranspose(8, 3, 2, "same", activation="relu")(x)
    return compiled(keras.Model(inputs, layers.Conv2DTranspose(3, 3, 2, "same")(x)), "mse")

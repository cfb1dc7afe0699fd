"""Cases that differ on several workers by nature, and that virtual workers make equal."""

from typing import Any

import keras
import numpy as np
from case import X, Y, case
from models import compiled, layers, optimizers, with_layers

ROWS = "each worker normalizes with its own rows"
DRAWS = "each worker draws its own random numbers"


@case(only_virtual=DRAWS)
def dropout():
    return with_layers(layers.Dropout(0.3), layers.GaussianNoise(0.1), layers.GaussianDropout(0.1))


@case(only_virtual=ROWS)
def batch_normalization():
    return with_layers(layers.BatchNormalization())


@case(only_virtual=ROWS, data=(X[:97], Y[:97]), held_out=(X[:33], Y[:33]))
def batch_normalization_of_few_rows():
    return with_layers(layers.BatchNormalization(), layers.Dropout(0.5))


class Noise(layers.Layer):
    """Draws from Keras's global generator."""

    def call(self, inputs: Any) -> Any:
        return inputs + keras.random.normal(keras.ops.shape(inputs), stddev=0.1)


@case(only_virtual=DRAWS)
def global_random_numbers():
    return with_layers(Noise())


IMAGES = np.random.default_rng(1).uniform(size=(101, 8, 8, 3)).astype("float32")
LABELS = (IMAGES.mean((1, 2, 3)) > 0.5).astype("int32")


@case(only_virtual=DRAWS, data=(IMAGES, LABELS))
def augmentation():
    return compiled(
        keras.Sequential([
            keras.Input((8, 8, 3)),
            layers.RandomFlip(),
            layers.RandomTranslation(0.1, 0.1),
            layers.RandomContrast(0.1),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(2),
        ])
    )  # fmt: skip


@case(only_virtual=DRAWS, data=(np.arange(606).reshape(101, 6) % 20, Y[:101]))
def lstm_with_dropout():
    return compiled(
        keras.Sequential([
            keras.Input((6,), dtype="int32"),
            layers.Embedding(20, 4),
            layers.LSTM(8, dropout=0.2, recurrent_dropout=0.2),
            layers.Dense(2),
        ])
    )  # fmt: skip


@case(only_virtual=ROWS, data=(IMAGES, LABELS))
def several_normalizations():
    return compiled(
        keras.Sequential([
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, padding="same"),
            layers.BatchNormalization(synchronized=True),
            layers.ReLU(),
            layers.Conv2D(4, 3, padding="same"),
            layers.BatchNormalization(synchronized=True),
            layers.ReLU(),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2),
        ]),
        optimizers.Adam(0.01),
    )  # fmt: skip

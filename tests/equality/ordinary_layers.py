"""Ordinary cases: layers, preprocessing, random layers."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from case import SENTENCES, X, Y
from models import compiled, layers, optimizers, stack, with_layers
from ordinary import NUMBERS, PICTURES, SERIES, TARGET, model_of, ordinary, regressor


@ordinary
def activations():
    return with_layers(
        layers.PReLU(), layers.LeakyReLU(), layers.ELU(), layers.Activation("swish"), layers.Softmax()
    )


@ordinary
def normalizations_of_a_row():
    return with_layers(
        layers.LayerNormalization(), layers.RMSNormalization(), layers.GroupNormalization(4),
        layers.UnitNormalization(),
    )  # fmt: skip


@ordinary
def shapes():
    return with_layers(
        layers.Reshape((4, 4)), layers.Permute((2, 1)), layers.EinsumDense("abc,cd->abd", (4, 3)),
        layers.ZeroPadding1D(1), layers.Cropping1D(1), layers.Flatten(), layers.RepeatVector(2),
        layers.Flatten(),
    )  # fmt: skip


@ordinary
def own_layer_of_rows():
    """Softmax, sums and sorts along the features of each row, which is no matter of the batch."""

    class Gate(layers.Layer):
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))

        def call(self, inputs: Any) -> Any:
            gate = keras.ops.softmax(keras.ops.matmul(inputs, self.kernel), axis=-1)
            shifted = inputs - keras.ops.mean(inputs, axis=-1, keepdims=True)
            return gate * shifted + keras.ops.max(inputs, axis=1, keepdims=True)

    return with_layers(Gate())


@ordinary
def lambda_of_rows():
    return with_layers(layers.Lambda(lambda rows: rows - tf.reduce_mean(rows, axis=1, keepdims=True)))


@ordinary
def shared_layer():
    shared = layers.Dense(8, "tanh")
    inputs = keras.Input((8,))
    return compiled(keras.Model(inputs, layers.Dense(2)(shared(shared(inputs)) + inputs)))


@ordinary(data=NUMBERS)
def normalized_inputs():
    adapted = layers.Normalization()
    adapted.adapt(X[:101])
    return regressor(stack(adapted, layers.Dense(8, "tanh"), layers.Dense(1)))


@ordinary(data=NUMBERS)
def buckets():
    bins = layers.Discretization([-1.0, 0.0, 1.0])
    return regressor(stack(bins, layers.CategoryEncoding(4, "count"), layers.Dense(1)))


WORDS = np.array([["red"], ["green"], ["blue"], ["grey"]])[np.arange(101) % 4]
TEXTS = np.array([["a red car"], ["green tea"], ["a blue blue sea"]])[np.arange(101) % 3]


# Keras's predict takes text in a pipeline only.
def texts(rows: Any) -> dict[str, Any]:
    return {
        "data": (rows, Y[:101]),
        "held_out": lambda: tf.data.Dataset.from_tensor_slices((rows, Y[:101])).batch(32),
    }


@ordinary(**texts(WORDS))
def looked_up_words():
    lookup = layers.StringLookup(vocabulary=["red", "green", "blue"], output_mode="one_hot")
    return model_of((1,), lookup, layers.Dense(2), dtype="string")


@ordinary(**texts(WORDS))
def hashed_words():
    return model_of(
        (1,), layers.Hashing(5), layers.Embedding(5, 3), layers.Flatten(), layers.Dense(2), dtype="string"
    )


@ordinary(**texts(TEXTS))
def vectorized_texts():
    vectorize = layers.TextVectorization(output_mode="int", output_sequence_length=4)
    vectorize.adapt(TEXTS[:3])
    return model_of(
        (1,), vectorize, layers.Embedding(12, 4, mask_zero=True), layers.LSTM(4), layers.Dense(2),
        dtype="string",
    )  # fmt: skip


@ordinary(data=PICTURES)
def rescaled_pictures():
    return model_of(
        (8, 8, 3), layers.Rescaling(2.0, -1.0), layers.Resizing(4, 4), layers.CenterCrop(3, 3),
        layers.Flatten(), layers.Dense(2),
    )  # fmt: skip


@ordinary(random=True)
def dropout_of_rows():
    return with_layers(layers.Dropout(0.2), layers.AlphaDropout(0.1), layers.GaussianNoise(0.1))


@ordinary(data=PICTURES, random=True)
def augmented_pictures():
    return model_of(
        (8, 8, 3), layers.RandomFlip(), layers.RandomRotation(0.1), layers.RandomZoom(0.1),
        layers.RandomBrightness(0.1, value_range=(0, 1)), layers.Conv2D(4, 3), layers.SpatialDropout2D(0.2),
        layers.GlobalAveragePooling2D(), layers.Dense(2),
    )  # fmt: skip


@ordinary(data=SENTENCES, random=True)
def transformer_with_dropout():
    inputs = keras.Input((6,), dtype="int32")
    rows = layers.Embedding(20, 8)(inputs)
    rows += layers.MultiHeadAttention(2, 4, dropout=0.2)(rows, rows)
    pooled = layers.Dropout(0.2)(layers.GlobalAveragePooling1D()(rows))
    return compiled(keras.Model(inputs, layers.Dense(2)(pooled)))


@ordinary(data=(SERIES, TARGET), random=True)
def recurrent_dropout():
    model = keras.Sequential([
        keras.Input((6, 4)), layers.LSTM(5, dropout=0.2, recurrent_dropout=0.2, return_sequences=True),
        layers.GRU(5, dropout=0.1), layers.Dense(1),
    ])  # fmt: skip
    return regressor(model, optimizers.RMSprop(0.01))

"""Ordinary cases: architectures."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from case import SENTENCES, TOKENS, X, Y
from models import compiled, layers, losses, metrics, optimizers, stack
from ordinary import IMAGES, NUMBERS, PICTURES, SERIES, TARGET, model_of, ordinary, regressor


@ordinary(data=NUMBERS, validation=NUMBERS)
def perceptron():
    return regressor(stack(layers.Dense(32, "gelu"), layers.Dense(16, "selu"), layers.Dense(1)))


@ordinary(data=PICTURES, validation=PICTURES)
def lenet():
    return model_of(
        (8, 8, 3), layers.Conv2D(4, 3, activation="tanh", padding="same"), layers.AveragePooling2D(2),
        layers.Conv2D(8, 3, activation="tanh"), layers.GlobalMaxPooling2D(), layers.Dense(2),
    )  # fmt: skip


@ordinary(data=PICTURES)
def separable_convolutions():
    return model_of(
        (8, 8, 3), layers.SeparableConv2D(6, 3), layers.DepthwiseConv2D(3), layers.ReLU(6.0),
        layers.GlobalAveragePooling2D(), layers.Dense(2),
    )  # fmt: skip


@ordinary(data=(IMAGES, IMAGES))
def convolutional_autoencoder():
    inputs = keras.Input((8, 8, 3))
    code = layers.Conv2D(4, 3, 2, "same", activation="tanh")(inputs)
    wide = layers.Conv2DTranspose(4, 3, 2, "same", activation="tanh")(code)
    joined = layers.Concatenate()([wide, layers.UpSampling2D()(code), inputs])
    return regressor(keras.Model(inputs, layers.Conv2D(3, 1)(joined)))


def residual_network(normalization: Any, **arguments: Any) -> keras.Model:
    inputs = keras.Input((8, 8, 3))
    rows = layers.Conv2D(4, 3, padding="same")(inputs)
    for _ in range(2):
        added = layers.Conv2D(4, 3, padding="same", activation="tanh")(normalization()(rows))
        rows = layers.Add()([rows, added])
    outputs = layers.Dense(2)(layers.GlobalAveragePooling2D()(rows))
    return compiled(keras.Model(inputs, outputs), optimizers.SGD(0.1), **arguments)


@ordinary(data=PICTURES, bound=1e-5)
def residual_with_synchronized_normalization():
    return residual_network(lambda: layers.BatchNormalization(synchronized=True))


@ordinary(data=PICTURES)
def residual_with_frozen_normalization():
    return residual_network(lambda: layers.BatchNormalization(trainable=False))


@ordinary(data=PICTURES)
def residual_with_groups():
    return residual_network(lambda: layers.GroupNormalization(2))


@ordinary(data=PICTURES)
def frozen_base():
    """Transfer learning: a base in inference mode, whose normalization has statistics, and a new head."""
    base = keras.Sequential(
        [keras.Input((8, 8, 3)), layers.Conv2D(4, 3), layers.BatchNormalization(), layers.ReLU()], name="base"
    )
    base.trainable = False
    inputs = keras.Input((8, 8, 3))
    pooled = layers.GlobalAveragePooling2D()(base(inputs, training=False))
    return compiled(keras.Model(inputs, layers.Dense(2)(pooled)))


@ordinary(data=SENTENCES)
def bag_of_words():
    return model_of(
        (6,), layers.Embedding(20, 8, mask_zero=True), layers.GlobalAveragePooling1D(), layers.Dense(2),
        dtype="int32",
    )  # fmt: skip


@ordinary(data=SENTENCES)
def bidirectional_lstm():
    return model_of(
        (6,), layers.Embedding(20, 4, mask_zero=True),
        layers.Bidirectional(layers.LSTM(4, return_sequences=True)), layers.GRU(4), layers.Dense(2),
        dtype="int32",
    )  # fmt: skip


@ordinary(data=(SERIES, Y[:101]))
def masked_series():
    return model_of((6, 4), layers.Masking(0.0), layers.SimpleRNN(5), layers.Dense(2))


@ordinary(data=(SERIES, SERIES[:, ::-1]))
def sequence_to_sequence():
    cells = layers.RNN([layers.LSTMCell(5), layers.GRUCell(5)], return_sequences=True)
    model = keras.Sequential([keras.Input((6, 4)), cells, layers.TimeDistributed(layers.Dense(4))])
    return regressor(model)


@ordinary(data=(SERIES, Y[:101]))
def dilated_convolutions():
    return model_of(
        (6, 4), layers.Conv1D(6, 2, padding="causal", dilation_rate=2, activation="tanh"),
        layers.LayerNormalization(), layers.GlobalMaxPooling1D(), layers.Dense(2),
    )  # fmt: skip


@ordinary(data=(IMAGES.reshape(101, 2, 4, 8, 3), Y[:101]))
def convolutional_lstm():
    return model_of((2, 4, 8, 3), layers.ConvLSTM2D(2, 3), layers.Flatten(), layers.Dense(2))


class Block(layers.Layer):
    """A transformer's block."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = layers.MultiHeadAttention(2, 4)
        self.first, self.second = layers.LayerNormalization(), layers.LayerNormalization()
        self.wide, self.narrow = layers.Dense(16, "gelu"), layers.Dense(8)

    def call(self, inputs: Any) -> Any:
        rows = self.first(inputs + self.attention(inputs, inputs, use_causal_mask=True))
        return self.second(rows + self.narrow(self.wide(rows)))


class Positions(layers.Layer):
    """Adds a trained vector for each place in the sentence."""

    def build(self, shape: Any) -> None:
        self.vectors = self.add_weight(shape=shape[1:], initializer="uniform")

    def call(self, inputs: Any) -> Any:
        return inputs + self.vectors


@ordinary(data=SENTENCES, bound=1e-5)
def transformer_encoder():
    return model_of(
        (6,), layers.Embedding(20, 8), Positions(), Block(), Block(), layers.GlobalAveragePooling1D(),
        layers.Dense(2), dtype="int32",
    )  # fmt: skip


@ordinary(data=(TOKENS[:101], np.roll(TOKENS[:101], -1, axis=1)), bound=1e-5)
def language_model_with_tied_weights():
    """The table of the words is also the kernel of the logits, which count where there is a word."""

    class Tied(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.block = layers.Embedding(20, 8), Block()

        def call(self, inputs: Any) -> Any:
            rows = self.block(self.table(inputs))
            return keras.ops.matmul(rows, keras.ops.transpose(self.table.embeddings))

    return compiled(Tied(), loss=losses.SparseCategoricalCrossentropy(True, ignore_class=0))


@ordinary(data=((SERIES, SERIES[:, :3]), Y[:101]))
def attention_of_two_inputs():
    query, value = keras.Input((6, 4)), keras.Input((3, 4))
    seen = layers.Attention(use_scale=True)([query, value]), layers.AdditiveAttention()([query, value])
    pooled = [layers.GlobalAveragePooling1D()(part) for part in seen]
    return compiled(keras.Model((query, value), layers.Dense(2)(layers.Concatenate()(pooled))))


@ordinary(data=((X[:101], X[:101, ::-1]), TARGET))
def siamese():
    tower = stack(layers.Dense(8, "tanh"), layers.UnitNormalization())
    left, right = keras.Input((8,)), keras.Input((8,))
    likeness = layers.Dot(axes=1)([tower(left), tower(right)])
    return regressor(keras.Model((left, right), likeness))


@ordinary(data=({"wide": X[:101, :3], "deep": X[:101, 3:]}, {"kind": Y[:101], "value": TARGET}))
def wide_and_deep():
    inputs = {"wide": keras.Input((3,)), "deep": keras.Input((5,))}
    hidden = layers.Dense(8, "tanh")(inputs["deep"])
    joined = layers.Concatenate()([inputs["wide"], hidden])
    outputs = {"kind": layers.Dense(2)(joined), "value": layers.Dense(1)(hidden)}
    model = keras.Model(inputs, outputs)
    return compiled(
        model, loss={"kind": losses.SparseCategoricalCrossentropy(from_logits=True), "value": "mae"},
        metrics={"kind": ["accuracy"], "value": [metrics.RootMeanSquaredError()]},
    )  # fmt: skip


@ordinary(data=(np.stack([TOKENS[:101, 0], TOKENS[:101, 1] % 7], axis=1), TARGET))
def matrix_factorization():
    pair = keras.Input((2,), dtype="int32")
    users = layers.Embedding(20, 4, embeddings_regularizer="l2")(pair[:, 0])
    items = layers.Embedding(7, 4, embeddings_constraint="unit_norm")(pair[:, 1])
    return regressor(keras.Model(pair, layers.Dot(axes=1)([users, items])))


@ordinary(data=NUMBERS)
def own_network_with_lists():
    """A subclass that is built at its first call, with layers in a list and a branch on ``training``."""

    class Listed(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [layers.Dense(8, "tanh") for _ in range(3)]
            self.out = layers.Dense(1)

        def call(self, inputs: Any, training: bool = False) -> Any:
            rows = inputs
            for part in self.parts if training else self.parts[:]:
                rows = part(rows) + rows
            return self.out(rows)

    return regressor(Listed())


@ordinary(data=(X[:101], X[:101]), random=True)
def variational_autoencoder():
    """As in Keras's guide: a layer that samples, and a divergence that it adds for each row."""

    class Sampling(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.seeds = keras.random.SeedGenerator(1)

        def call(self, inputs: Any) -> Any:
            mean, log = inputs
            divergence = -0.5 * keras.ops.sum(1 + log - keras.ops.square(mean) - keras.ops.exp(log), axis=1)
            self.add_loss(0.01 * keras.ops.mean(divergence))
            noise = keras.random.normal(keras.ops.shape(mean), seed=self.seeds)
            return mean + keras.ops.exp(0.5 * log) * noise

    inputs = keras.Input((8,))
    hidden = layers.Dense(8, "tanh")(inputs)
    code = Sampling()([layers.Dense(2)(hidden), layers.Dense(2)(hidden)])
    return regressor(keras.Model(inputs, layers.Dense(8)(layers.Dense(8, "tanh")(code))))


def ratings() -> tf.data.Dataset:
    """A pipeline with a map, a cache and read-ahead."""
    rows = tf.data.Dataset.from_tensor_slices(NUMBERS)
    return rows.map(lambda x, y: (x * 2.0, y / 2.0)).cache().batch(32).prefetch(2)


@ordinary(data=ratings)
def network_on_a_pipeline():
    return regressor(stack(layers.Dense(8, "tanh"), layers.Dense(1)))

"""Cases: layers that mix the rows of a batch."""

from typing import Any

import keras
import tensorflow as tf
from case import case
from keras import ops
from models import layers, with_layers
from nets import not_silent

MIXES = not_silent("rows|batch")


class OwnNormalization(layers.Layer):
    """Batch normalization as one writes it: the statistics of the batch, and moving averages."""

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)
        self.variance = self.add_weight(shape=(shape[-1],), initializer="ones", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training:
            return (inputs - self.mean) / ops.sqrt(self.variance + 1e-3)
        mean, variance = ops.mean(inputs, axis=0), ops.var(inputs, axis=0)
        self.mean.assign(0.9 * self.mean + 0.1 * mean)
        self.variance.assign(0.9 * self.variance + 0.1 * variance)
        return (inputs - mean) / ops.sqrt(variance + 1e-3)


@case(**MIXES)
def own_batch_normalization():
    return with_layers(OwnNormalization())


@case(**MIXES)
def batch_renormalization():
    """The statistics of the batch, with corrections towards the moving averages that have no gradient."""

    class Renormalization(OwnNormalization):
        def call(self, inputs: Any, training: bool = False) -> Any:
            normalized = super().call(inputs, training=training)
            if not training:
                return normalized
            ratio = ops.std(inputs, axis=0) / ops.sqrt(self.variance + 1e-3)
            return normalized * ops.stop_gradient(ops.clip(ratio, 0.5, 2.0))

    return with_layers(Renormalization())


@case(**MIXES)
def ghost_batch_normalization():
    """Each half of the batch is normalized by itself."""

    class Ghost(layers.Layer):
        def call(self, inputs: Any) -> Any:
            half = ops.maximum(ops.shape(inputs)[0] // 2, 1)
            parts = inputs[:half], inputs[half:]
            return ops.concatenate([part - ops.mean(part, axis=0) for part in parts], axis=0)

    return with_layers(Ghost())


@case(**MIXES)
def minibatch_deviation():
    """The discriminator of a progressive GAN: the spread over the batch is one more feature of each row."""

    class Deviation(layers.Layer):
        def call(self, inputs: Any) -> Any:
            spread = ops.mean(ops.sqrt(ops.var(inputs, axis=0) + 1e-8))
            return ops.concatenate([inputs, ops.zeros_like(inputs[:, :1]) + spread], axis=1)

    return with_layers(Deviation())


@case(**MIXES)
def centered_in_a_graph():
    inputs = keras.Input((8,))
    hidden = layers.Dense(16, "tanh")(inputs)
    outputs = layers.Dense(2)(hidden - ops.mean(hidden, axis=0, keepdims=True))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@case(**MIXES)
def centered_in_call():
    class Centered(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.out = layers.Dense(16, "tanh"), layers.Dense(2)

        def call(self, inputs: Any) -> Any:
            hidden = self.hidden(inputs)
            return self.out(hidden - tf.reduce_mean(hidden, axis=0, keepdims=True))

    model = Centered()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@case(**MIXES)
def centered_in_a_lambda():
    return with_layers(layers.Lambda(lambda rows: rows - ops.mean(rows, axis=0, keepdims=True)))


@case(**MIXES)
def whitening():
    class Whitening(layers.Layer):
        def call(self, inputs: Any) -> Any:
            rows = inputs - ops.mean(inputs, axis=0)
            spread = ops.matmul(ops.transpose(rows), rows) / ops.cast(ops.shape(rows)[0], "float32")
            root = ops.cholesky(spread + 0.1 * ops.eye(4))
            return ops.transpose(ops.solve_triangular(root, ops.transpose(rows), lower=True))

    return with_layers(layers.Dense(4), Whitening())


@case(**MIXES)
def softmax_over_the_batch():
    return with_layers(layers.Dense(6), layers.Softmax(axis=0))


@case(**MIXES)
def attention_between_rows():
    """Each row attends to the others of its batch."""

    class BetweenRows(layers.Layer):
        def call(self, inputs: Any) -> Any:
            scores = ops.softmax(ops.matmul(inputs, ops.transpose(inputs)) / 4.0, axis=-1)
            return ops.matmul(scores, inputs)

    return with_layers(BetweenRows())


@case(**MIXES)
def rolled_rows():
    """Adds to each row a part of the row before it."""

    class Rolled(layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs + 0.5 * ops.roll(inputs, 1, axis=0)

    return with_layers(Rolled())


@case(**MIXES)
def scaled_by_the_largest():
    """Scales by the largest value of the batch, which has no gradient."""

    class Scaled(layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs / (1.0 + ops.stop_gradient(ops.max(ops.abs(inputs))))

    return with_layers(Scaled())


@case(**MIXES)
def position_in_the_batch():
    """Weights rows by where they are in the batch."""

    class ByPosition(layers.Layer):
        def call(self, inputs: Any) -> Any:
            places = ops.cast(ops.arange(ops.shape(inputs)[0]), "float32")
            return inputs * ops.expand_dims(1.0 / (1.0 + places), 1)

    return with_layers(ByPosition())


@case(**MIXES)
def size_of_the_batch():
    """Scales by the number of rows."""

    class BySize(layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs / ops.sqrt(ops.cast(ops.shape(inputs)[0], "float32"))

    return with_layers(BySize())

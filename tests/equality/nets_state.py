"""Cases: state that no gradient changes."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from case import X, Y, case
from keras import ops
from models import layers, losses, optimizers, stack, with_layers
from nets import REGRESSION, OwnStep, not_silent, stepping

STATE = not_silent("variable|weight|state|rows")


@case(data=(X[:101], X[:101]), **STATE)
def codebook_of_moving_averages():
    """The quantizer of a VQ-VAE: each code moves to the mean of the rows of the batch that chose it."""

    class Quantizer(layers.Layer):
        def build(self, shape: Any) -> None:
            self.codes = self.add_weight(
                shape=(6, shape[-1]), initializer=keras.initializers.RandomNormal(seed=1), trainable=False
            )

        def call(self, inputs: Any, training: bool = False) -> Any:
            apart = ops.sum(ops.square(ops.expand_dims(inputs, 1) - self.codes), axis=-1)
            chosen = ops.one_hot(ops.argmin(apart, axis=1), 6)
            if training:
                sums = ops.matmul(ops.transpose(chosen), inputs)
                count = ops.expand_dims(ops.sum(chosen, axis=0), 1)
                self.codes.assign(0.9 * self.codes + 0.1 * sums / ops.maximum(count, 1.0))
            return inputs + ops.stop_gradient(ops.matmul(chosen, self.codes) - inputs)

    model = stack(layers.Dense(4), Quantizer(), layers.Dense(8))
    model.compile(optimizers.SGD(0.05), "mse")
    return model


@case(**STATE)
def counter_of_rows():
    class Counter(layers.Layer):
        def build(self, shape: Any) -> None:
            self.rows = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, inputs: Any, training: bool = False) -> Any:
            if training:
                self.rows.assign_add(ops.cast(ops.shape(inputs)[0], "float32"))
            return inputs

    return with_layers(Counter())


@case
def counter_of_steps():
    """Every worker counts the same steps."""

    class Counter(layers.Layer):
        def build(self, shape: Any) -> None:
            self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, inputs: Any, training: bool = False) -> Any:
            if training:
                self.steps.assign_add(1.0)
            return inputs * (1.0 + 0.01 * self.steps)

    return with_layers(Counter())


@case(**STATE)
def running_maximum():
    """Divides by the largest value so far, as quantization-aware training does."""

    class Largest(layers.Layer):
        def build(self, shape: Any) -> None:
            self.largest = self.add_weight(shape=(), initializer="ones", trainable=False)

        def call(self, inputs: Any, training: bool = False) -> Any:
            if training:
                self.largest.assign(ops.maximum(self.largest, ops.max(ops.abs(inputs))))
            return inputs / self.largest

    return with_layers(Largest())


class Teacher(OwnStep):
    """A network that learns from a slow copy of itself."""

    def __init__(self) -> None:
        super().__init__(4)
        self.slow = keras.Sequential([layers.Dense(16, "tanh"), layers.Dense(4)])
        self.slow.trainable = False
        self.build_layers()
        self.slow.build((None, 8))

    def follow(self) -> None:
        fast = self.hidden.variables + self.out.variables
        for slow, own in zip(self.slow.variables, fast, strict=True):
            slow.assign(0.9 * slow + 0.1 * own)

    def loss_of(self, x: Any, y: Any, predicted: Any) -> Any:
        return super().loss_of(x, ops.stop_gradient(self.slow(x[:, ::-1])), predicted)

    def train_step(self, data: Any) -> dict[str, Any]:
        logs = super().train_step(data)
        self.follow()
        return logs


FOUR = (X[:101], X[:101, :4])


@case(data=FOUR)
def momentum_teacher():
    """The copy follows weights that all workers have, so it is the same on all."""
    return stepping(Teacher())


@case(data=FOUR, **STATE)
def center_of_dino():
    """The targets are centered by a moving average over the rows of the batches."""

    class Dino(Teacher):
        def __init__(self) -> None:
            super().__init__()
            self.center = self.add_weight(shape=(4,), initializer="zeros", trainable=False, name="center")

        def loss_of(self, x: Any, y: Any, predicted: Any) -> Any:
            slow = self.slow(x[:, ::-1])
            targets = ops.stop_gradient(ops.softmax((slow - self.center) / 0.1))
            self.center.assign(0.9 * self.center + 0.1 * ops.mean(slow, axis=0))
            return self.compute_loss(x, targets, ops.softmax(predicted))

    return stepping(Dino(), loss="categorical_crossentropy")


@case(data=FOUR, **STATE)
def queue_of_moco():
    """Keys of the last batches, which the rows of this batch must not be like."""

    class Moco(Teacher):
        def __init__(self) -> None:
            super().__init__()
            first = keras.initializers.RandomNormal(seed=2)
            self.queue = self.add_weight(shape=(40, 4), initializer=first, trainable=False, name="queue")

        def loss_of(self, x: Any, y: Any, predicted: Any) -> Any:
            keys = ops.stop_gradient(ops.normalize(self.slow(x[:, ::-1])))
            queries = ops.normalize(predicted)
            own = ops.sum(queries * keys, axis=1, keepdims=True)
            logits = ops.concatenate([own, ops.matmul(queries, ops.transpose(self.queue))], axis=1)
            self.queue.assign(ops.concatenate([keys, self.queue], axis=0)[:40])
            first = ops.zeros_like(logits[:, 0], dtype="int32")
            return ops.mean(losses.sparse_categorical_crossentropy(first, logits / 0.5, from_logits=True))

    return stepping(Moco())


@case(data=({"x": X[:101], "row": np.arange(101)}, X[:101, :4]), **STATE)
def bank_of_instances():
    """A memory has a vector for each example, which its row replaces by its number."""

    class Bank(OwnStep):
        def __init__(self) -> None:
            super().__init__(4)
            first = keras.initializers.RandomNormal(seed=3)
            self.bank = self.add_weight(shape=(101, 4), initializer=first, trainable=False, name="bank")

        def call(self, inputs: Any) -> Any:
            return super().call(inputs["x"])

        def loss_of(self, x: Any, y: Any, predicted: Any) -> Any:
            rows = ops.normalize(predicted)
            logits = ops.matmul(rows, ops.transpose(self.bank)) / 0.5
            new = tf.tensor_scatter_nd_update(self.bank.value, x["row"][:, tf.newaxis], rows)
            self.bank.assign(tf.stop_gradient(new))
            return ops.mean(losses.sparse_categorical_crossentropy(x["row"], logits, from_logits=True))

    return stepping(Bank())


@case(**STATE)
def statistics_in_a_step():
    """The step keeps the mean of the inputs, by which ``call()`` shifts them."""

    class Shifted(OwnStep):
        def __init__(self) -> None:
            super().__init__(2)
            self.shift = self.add_weight(shape=(8,), initializer="zeros", trainable=False, name="shift")

        def call(self, inputs: Any) -> Any:
            return super().call(inputs - self.shift)

        def train_step(self, data: Any) -> dict[str, Any]:
            self.shift.assign(0.9 * self.shift + 0.1 * ops.mean(data[0], axis=0))
            return super().train_step(data)

    sparse = losses.SparseCategoricalCrossentropy(from_logits=True)
    return stepping(Shifted(), loss=sparse, metrics=["accuracy"])


@case(data=REGRESSION, **STATE)
def spectral_direction():
    """Power iteration on the activations: its vector depends on the rows of the batch."""

    class Direction(layers.Layer):
        def build(self, shape: Any) -> None:
            self.vector = self.add_weight(shape=(shape[-1], 1), initializer="ones", trainable=False)

        def call(self, inputs: Any, training: bool = False) -> Any:
            if training:
                longer = ops.matmul(ops.transpose(inputs), ops.matmul(inputs, self.vector))
                self.vector.assign(ops.stop_gradient(ops.normalize(longer, axis=0)))
            return inputs - ops.matmul(ops.matmul(inputs, self.vector), ops.transpose(self.vector))

    model = stack(layers.Dense(6), Direction(), layers.Dense(1))
    model.compile(optimizers.SGD(0.05), "mse")
    return model


@case(data=(X[:101], Y[:101]))
def spectral_normalization():
    """Keras's own iterates on the kernel, which all workers have."""
    return with_layers(layers.SpectralNormalization(layers.Dense(8)))

"""Trains models whose steps use the gradients of tapes: on one device, on two, and on virtual workers.

Usage: tapes.py FILE   (which gets what was found, as JSON)
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdistr
from tfdistr.errors import TfdistrError

tf.config.threading.set_intra_op_parallelism_threads(1)  # as virtual workers need it
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

rng = np.random.default_rng(0)
X = rng.normal(size=(45, 4)).astype("float32")  # batches of 16, 16 and 13
IDS = rng.integers(0, 5, size=(45, 3))
Y = X.sum(axis=1, keepdims=True)


class Steps(keras.Model):
    """Two weights; subclasses change them by gradients that tapes give."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (dense(seed) for seed in (1, 2))

    def build(self, shape: Any) -> None:
        self.first.build(shape)
        self.second.build(shape)

    def call(self, inputs: Any) -> Any:
        return self.first(inputs) + self.second(inputs)

    def errors(self, data: Any) -> tf.Tensor:
        """Return a loss for each row."""
        return tf.reduce_sum((data[1] - self(data[0])) ** 2, axis=1)

    def gradients(self, data: Any, weights: Any, *, mean: bool = True) -> list[Any]:
        with tf.GradientTape() as tape:
            errors = self.errors(data)
            loss = tf.reduce_mean(errors) if mean else errors
        return tape.gradient(loss, weights)

    def train_step(self, data: Any) -> dict[str, Any]:
        self.change(data)
        return {"rows": tf.shape(data[0])[0]}

    def change(self, data: Any) -> None:
        raise NotImplementedError


def dense(seed: int) -> keras.layers.Layer:
    return keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(seed))


class Vector(Steps):
    """One loss value per row."""

    def change(self, data: Any) -> None:
        weights = self.trainable_weights
        self.optimizer.apply(self.gradients(data, weights, mean=False), weights)


class Vectors(Steps):
    """Two optimizers, each with one loss value per row."""

    def __init__(self) -> None:
        super().__init__()
        self.others = keras.optimizers.SGD(0.002)

    def change(self, data: Any) -> None:
        for optimizer, layer in ((self.optimizer, self.first), (self.others, self.second)):
            weights = layer.trainable_weights
            optimizer.apply(self.gradients(data, weights, mean=False), weights)


class Clipped(Steps):
    def change(self, data: Any) -> None:
        weights = self.trainable_weights
        self.optimizer.apply(tf.clip_by_global_norm(self.gradients(data, weights), 0.5)[0], weights)


class Sparse(Clipped):
    """Clips the rows of embeddings, some of which occur several times, as TensorFlow gives them."""

    def __init__(self) -> None:
        super().__init__()
        start = keras.initializers.RandomNormal(seed=3)
        self.embedding = keras.layers.Embedding(5, 4, embeddings_initializer=start)

    def build(self, shape: Any) -> None:
        self.embedding.build((None, 3))
        super().build((None, 4))

    def call(self, inputs: Any) -> Any:
        return super().call(tf.reduce_sum(self.embedding(inputs), axis=1))


class Private(Steps):
    """Clips the gradient of each row."""

    def change(self, data: Any) -> None:
        weights = self.trainable_weights
        with tf.GradientTape() as tape:
            errors = self.errors(data)
        rows = [tf.clip_by_norm(rows, 0.5, axes=[1, 2][: len(weight.shape)])
                for rows, weight in zip(tape.jacobian(errors, weights), weights, strict=True)]  # fmt: skip
        self.optimizer.apply([tf.reduce_mean(row, axis=0) for row in rows], weights)


class MixedSums(Steps):
    """Adds the gradient of a function of its own to one that it takes itself."""

    @tf.function
    def half(self, data: Any) -> list[Any]:
        return [0.5 * gradient for gradient in self.gradients(data, self.trainable_weights)]

    def change(self, data: Any) -> None:
        weights = self.trainable_weights
        pairs = zip(self.gradients(data, weights), self.half(data), strict=True)
        self.optimizer.apply([one + other for one, other in pairs], weights)


class InBranch(MixedSums):
    """Takes one of the gradients in a branch."""

    def half(self, data: Any) -> list[Any]:
        weights = self.trainable_weights
        zeros = [tf.zeros_like(weight.value) for weight in weights]
        return tf.cond(data[1][0, 0] > 0, lambda: self.gradients(data, weights), lambda: zeros)


class OwnFunction(MixedSums):
    """Takes all gradients in a function of its own."""

    def change(self, data: Any) -> None:
        self.optimizer.apply(self.half(data), self.trainable_weights)


EXACT = (Vectors, Clipped, Sparse, Private, OwnFunction)


def trained(strategy: tf.distribute.Strategy, kind: type[Steps], **compiled: Any) -> list[np.ndarray]:
    """Return the weights after two epochs."""
    x = IDS if kind is Sparse else X
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = kind()
        model.build(x.shape)
        model.compile(keras.optimizers.SGD(0.002 if kind in (Vector, Vectors) else 0.05), **compiled)
    start = model.get_weights()
    model.fit(tf.data.Dataset.from_tensor_slices((x, Y)).batch(16), epochs=2, verbose=0)
    assert any(np.abs(a - b).max() > 0.01 for a, b in zip(start, model.get_weights(), strict=True))
    return model.get_weights()


def devices() -> tf.distribute.Strategy:
    return tfdistr.MirroredStrategy(["cpu:0", "cpu:1"])


def virtual() -> tf.distribute.Strategy:
    return tfdistr.MultiWorkerMirroredStrategy(virtual_workers=3)


def apart(make: Callable[[], tf.distribute.Strategy], kind: type[Steps], **compiled: Any) -> float:
    """Return how far the weights are from those of one device."""
    of_one = trained(tfdistr.OneDeviceStrategy("cpu:0"), kind, **compiled)
    of_all = trained(make(), kind, **compiled)
    return max(float(np.abs(a - b).max()) for a, b in zip(of_one, of_all, strict=True))


def refusal(make: Callable[[], tf.distribute.Strategy], kind: type[Steps]) -> str:
    try:
        trained(make(), kind)
    except TfdistrError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    found: dict[str, Any] = {
        "two devices": {kind.__name__: apart(devices, kind) for kind in EXACT},
        "virtual": {kind.__name__: apart(virtual, kind) for kind in EXACT},
        "virtual, eagerly": apart(virtual, Vector, run_eagerly=True),
        "mixed": {
            "two devices": refusal(devices, MixedSums),
            "virtual": refusal(virtual, MixedSums),
            "branch": refusal(virtual, InBranch),
        },
    }
    Path(sys.argv[1]).write_text(json.dumps(found))

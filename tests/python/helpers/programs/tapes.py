"""Trains models whose steps use the gradients of tapes in ways that tests/equality has not.

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


def trained(strategy: tf.distribute.Strategy, kind: type[Steps], **compiled: Any) -> list[np.ndarray]:
    """Return the weights after two epochs."""
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = kind()
        model.build(X.shape)
        model.compile(keras.optimizers.SGD(0.002), **compiled)
    start = model.get_weights()
    model.fit(tf.data.Dataset.from_tensor_slices((X, Y)).batch(16), epochs=2, verbose=0)
    assert any(np.abs(a - b).max() > 0.01 for a, b in zip(start, model.get_weights(), strict=True))
    return model.get_weights()


def devices() -> tf.distribute.Strategy:
    return tfdistr.MirroredStrategy(["cpu:0", "cpu:1"])


def virtual() -> tf.distribute.Strategy:
    return tfdistr.MultiWorkerMirroredStrategy(virtual_workers=3)


def eagerly_apart() -> float:
    """Return how far the weights are from those of one device, if virtual workers run eagerly."""
    of_one, of_all = (
        trained(strategy, Vector, run_eagerly=True)
        for strategy in (tfdistr.OneDeviceStrategy("cpu:0"), virtual())
    )
    return max(float(np.abs(a - b).max()) for a, b in zip(of_one, of_all, strict=True))


def refusal(make: Callable[[], tf.distribute.Strategy], kind: type[Steps]) -> str:
    try:
        trained(make(), kind)
    except TfdistrError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    found: dict[str, Any] = {
        "virtual, eagerly": eagerly_apart(),
        "mixed": {
            "two devices": refusal(devices, MixedSums),
            "virtual": refusal(virtual, MixedSums),
            "branch": refusal(virtual, InBranch),
        },
    }
    Path(sys.argv[1]).write_text(json.dumps(found))

"""The small models of the planted faults, and their data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from keras.activations import linear

Make = Callable[[], keras.Model]
ROWS, BATCH = 96, 8
STEPS = ROWS // BATCH  # of an epoch

_rng = np.random.default_rng(0)
_y = _rng.integers(0, 2, ROWS).astype("int32")


def _of_class(*shape: int) -> np.ndarray[Any, Any]:
    """Return rows whose mean tells their class."""
    noise = _rng.normal(size=(ROWS, *shape))
    return (noise + 0.5 * _y.reshape(-1, *(1 for _ in shape))).astype("float32")


#: The data of each model.
DATA = {
    "dense": (_of_class(4), _y),
    "log": (_of_class(4) ** 2 + 0.01, _y),
    "cnn": (_of_class(8, 8, 1), _y),
    "normal": (_of_class(4), _y),
    "lstm": (_of_class(5, 3), _y),
    "attention": (_rng.integers(0, 12, (ROWS, 6)).astype("int32"), _y),
    "half": (_of_class(4), _y),
}


class OwnStep(keras.Model):
    """A step of its own."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class Flipping(layers.Dense):
    """Flips one bit of the gradient of its kernel: at a step, on one worker, before the sum over workers."""

    at: tuple[int, int | None] | None = None
    made: Callable[[], Any]  # returns the number of steps that are made

    def call(self, inputs: Any) -> Any:
        return self.activation(tf.matmul(inputs, self._watched()) + self.bias)

    def _watched(self) -> Any:
        kernel, context = tf.convert_to_tensor(self.kernel), tf.distribute.get_replica_context()
        if self.at is None or context is None:
            return kernel
        step, worker = self.at
        here = context.replica_id_in_sync_group
        now = (tf.convert_to_tensor(self.made()) == step - 1) & (worker is None or here == worker)

        @tf.custom_gradient
        def same(kernel: tf.Tensor) -> Any:
            return tf.identity(kernel), lambda upstream: tf.where(now, flipped(upstream), upstream)

        return same(kernel)


def flipped(tensor: tf.Tensor) -> tf.Tensor:
    """Return a tensor of float32 with one bit of the exponent of its largest number flipped."""
    flat = tf.reshape(tensor, [-1])
    mask = tf.one_hot(tf.argmax(tf.abs(flat)), tf.size(flat), on_value=1 << 25, off_value=0, dtype=tf.int32)
    changed = tf.bitcast(tf.bitwise.bitwise_xor(tf.bitcast(flat, tf.int32), mask), tf.float32)
    return tf.reshape(changed, tf.shape(tensor))


class InParts(layers.Dense):
    """Computes what ``Dense`` computes, in another rounding: it adds up the inputs in the other order."""

    def call(self, inputs: Any) -> Any:
        return self.activation(ops.flip(inputs, -1) @ ops.flip(self.kernel, 0) + self.bias)


def _compiled(
    inputs: Any, hidden: Any, kind: Callable[..., keras.Model] = keras.Model, rate: Any = 0.05,
    loss: Any = "sparse_categorical_crossentropy", out: type = layers.Dense, flip: Any = None,
    seed: int | None = None, **given: Any,
) -> keras.Model:  # fmt: skip
    last = out(2, "softmax", name="out", kernel_initializer=keras.initializers.GlorotUniform(seed))
    model = kind(inputs, last(hidden))
    model.compile(keras.optimizers.SGD(rate), loss, **given)
    if out is Flipping:
        last.at, last.made = flip, lambda: model.optimizer.iterations
    return model


#: Functions that return a model function. Their arguments are those of the hidden layers and of `_compiled`.
MODELS: dict[str, Callable[..., Make]] = {}


def _net(*shape: int, dtype: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function from inputs of a shape to hidden layers as a model."""

    def register(hidden: Callable[..., Any]) -> Callable[..., Any]:
        names = inspect.signature(hidden).parameters

        def with_arguments(**given: Any) -> Make:
            own = {name: given.pop(name) for name in names if name in given}

            def make() -> keras.Model:
                inputs = keras.Input(shape, dtype=dtype)
                return _compiled(inputs, hidden(inputs, **own), **given)

            return make

        MODELS[hidden.__name__] = with_arguments
        return hidden

    return register


@_net(4)
def dense(
    inputs: Any, layer: type = layers.Dense, units: int = 8, activation: Any = "tanh", function: Any = linear,
    drop: int | None = None,
) -> Any:  # fmt: skip
    hidden = function(layer(units, activation, name="hidden")(inputs))
    return hidden if drop is None else layers.Dropout(0.4, seed=drop, name="drop")(hidden)


@_net(4)
def log(inputs: Any) -> Any:
    return dense(ops.log(inputs))


@_net(8, 8, 1)
def cnn(inputs: Any, activation: str = "relu", function: Any = linear) -> Any:
    hidden = layers.Conv2D(4, 3, activation=activation, name="conv")(inputs)
    return function(layers.Flatten()(layers.MaxPooling2D()(hidden)))


@_net(4)
def normal(inputs: Any, momentum: float = 0.9, function: Any = linear) -> Any:
    return layers.BatchNormalization(momentum=momentum, name="normal")(dense(function(inputs)))


@_net(5, 3)
def lstm(inputs: Any, units: int = 4) -> Any:
    return layers.LSTM(units, name="lstm")(inputs)


@_net(6, dtype="int32")
def attention(inputs: Any) -> Any:
    words = layers.Embedding(12, 8, name="words")(inputs)
    hidden = words + layers.MultiHeadAttention(2, 4, name="attention")(words, words)
    return layers.GlobalAveragePooling1D()(layers.LayerNormalization(name="normal")(hidden))


@_net(4)
def half(inputs: Any, factor: float = 1.0) -> Any:
    """Compute in 16 bits."""
    hidden = layers.Dense(8, "relu", name="hidden", dtype="float16")(inputs)
    return layers.Rescaling(factor, name="scale", dtype="float16")(hidden)

"""Models with attributes that no configuration describes."""

import pickle

import cloudpickle
import keras
import numpy as np
import tensorflow as tf

from tfdistr.training.model_copies.given_model import GivenModel

layers, ops = keras.layers, keras.ops
X = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
Y = X[:, :1] * 2


class Scaled(layers.Layer):
    """A layer whose attributes are in no configuration."""

    post = None

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.scale, self.offsets, self._hidden = 2.0, [1.0, 2.0], 1.0
        self.table = tf.Variable(1.0, trainable=False)
        self.dense = layers.Dense(8)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        factor = self.scale * self._hidden * ops.cast(self.table, self.compute_dtype)
        outputs = self.dense(x) * factor + sum(self.offsets)
        return outputs if self.post is None else self.post(outputs)


class Outer(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner, self.helpers = Scaled(), {"first": Helper()}

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        return self.inner(x) * self.helpers["first"].factor


class Helper:
    def __init__(self):
        self.factor = 1.0


def copy_elsewhere(model: keras.Model) -> keras.Model:
    """The copy that another process would have."""
    return pickle.loads(cloudpickle.dumps(GivenModel(model)))()


def state(model: keras.Model) -> list[np.ndarray]:
    variables = [*model.variables, *model.optimizer.variables]
    return [np.asarray(variable.value.numpy(), "float64") for variable in variables]


def compiled(model, optimizer=None, loss="mse"):
    model.compile(optimizer or keras.optimizers.SGD(0.01), loss)
    return model


def sequence(*parts, **arguments) -> keras.Model:
    return compiled(keras.Sequential([keras.Input((8,)), *parts, layers.Dense(1)]), **arguments)


def changed(*parts, **attributes) -> keras.Model:
    """A model whose first part gets attributes after it was made; ``inner__scale`` is one of a part of it."""
    model = sequence(*parts)
    for name, value in attributes.items():
        holder = model.layers[0]
        *way, last = name.split("__")
        for step in way:
            holder = getattr(holder, step)
        setattr(holder, last, value)
    return model


class Net(keras.Model):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.blocks = [layers.Dense(units, "relu") for _ in range(2)]
        self.parts = {"out": layers.Dense(1), "drop": layers.Dropout(0.2)}

    def call(self, x, training=False):
        for block in self.blocks:
            x = block(x)
        return self.parts["out"](self.parts["drop"](x, training=training))

    def get_config(self):
        return {**super().get_config(), "units": self.units}


class Configured(layers.Layer):
    """A layer with an object that others of its kind share."""

    shared = Helper()

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.helper = Configured.shared

    def call(self, x):
        return x * self.helper.factor

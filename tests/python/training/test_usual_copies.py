"""Models as they usually are: their copies need no corrections, and nothing is said."""

import logging
import threading
import warnings

import keras
import pytest
from copied_models import Net, X, Y, compiled, sequence

from tfdistr.training.model_copies.given_model import GivenModel

layers, ops = keras.layers, keras.ops


def transformer() -> keras.Model:
    inputs = keras.Input((6,))
    x = layers.Embedding(20, 8)(inputs)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, "gelu")(x)))
    model = keras.Model(inputs, layers.Dense(3, "softmax")(layers.GlobalAveragePooling1D()(x)))
    schedule = keras.optimizers.schedules.CosineDecay(0.01, 100)
    metrics = [keras.metrics.SparseCategoricalAccuracy(), keras.metrics.SparseTopKCategoricalAccuracy(2)]
    model.compile(keras.optimizers.AdamW(schedule), "sparse_categorical_crossentropy", metrics=metrics)
    return model


def recurrent() -> keras.Model:
    parts = [
        layers.Embedding(20, 8, mask_zero=True),
        layers.Bidirectional(layers.LSTM(4, recurrent_dropout=0.1, return_sequences=True)),
        layers.RNN([layers.LSTMCell(4), layers.GRUCell(4)]),
    ]
    return compiled(keras.Sequential([keras.Input((6,)), *parts, layers.Dense(1)]), "rmsprop")


def normalized() -> keras.Model:
    normalization = layers.Normalization()
    normalization.adapt(X)
    dense = layers.Dense(4, kernel_regularizer="l2", kernel_constraint=keras.constraints.MaxNorm(2.0))
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9, clipnorm=1.0, use_ema=True)
    return sequence(normalization, dense, layers.GaussianNoise(0.1), optimizer=optimizer, loss="huber")


def called_subclass() -> keras.Model:
    model = compiled(Net(4))
    model(X[:2])
    return model


class Projection(layers.Layer):
    def __init__(self, units, activation="relu", **kwargs):
        super().__init__(**kwargs)
        self.units, self.activation = units, keras.activations.get(activation)

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units))
        self.shape_of_kernel = (shape[-1], self.units)

    def call(self, x):
        self.last = self.activation(x @ self.kernel)  # a tensor of a trace
        return self.last

    def get_config(self):
        activation = keras.activations.serialize(self.activation)
        return {**super().get_config(), "units": self.units, "activation": activation}


def used_layers() -> keras.Model:
    model = sequence(Projection(8), Projection(8, "tanh"))
    model.fit(X, Y, verbose=0)
    model.predict(X, verbose=0)
    return model


def nested() -> keras.Model:
    encoder = keras.Sequential([keras.Input((8,)), layers.Dense(4, "relu")], name="encoder")
    encoder.trainable = False
    inputs = keras.Input((8,))
    outputs = {name: layers.Dense(1, name=name)(encoder(inputs)) for name in ("a", "b")}
    model = keras.Model(inputs, outputs)
    model.compile("adam", {"a": "mse", "b": "mae"}, loss_weights={"a": 1.0, "b": 0.5})
    return model


def of_text() -> keras.Model:
    lookup = layers.StringLookup(vocabulary=["a", "b", "c"])
    inputs = keras.Input((1,), dtype="string")
    return compiled(keras.Model(inputs, layers.Dense(1)(layers.Embedding(8, 2)(lookup(inputs))[:, 0])))


class Noted(Projection):
    """A layer with attributes that its code does not read."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.note = None


def noted() -> keras.Model:
    """A model with attributes that cannot be copied, and that no step reads."""
    model = sequence(Noted(4))
    model.past = model.fit(X, Y, verbose=0)
    model.stop, model.prepare, model.log = keras.callbacks.EarlyStopping(), ops.square, logging.getLogger()
    model.features = keras.Model(model.inputs, model.layers[0].output)
    model.layers[0].note = threading.Lock()
    return model


USUAL = [transformer, recurrent, normalized, lambda: compiled(Net(4)), called_subclass, used_layers, nested,
         of_text, noted]  # fmt: skip


@pytest.mark.parametrize("make", USUAL, ids=lambda make: make.__name__)
def test_a_usual_model_needs_no_corrections_and_makes_no_noise(make):
    model = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        given = GivenModel(model)
    assert given._corrections.patches == []
    assert given._corrections.values == given._corrections.optimizers == {}

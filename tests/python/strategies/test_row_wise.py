"""The parts of a model that are not proved to work row by row, and those that are."""

import time
from collections.abc import Callable
from typing import Any

import keras
import pytest
from keras import layers, ops

from tfdistr.strategies.exact.row_wise import unproved_parts


def compiled(model: keras.Model, loss: Any = "mse", **more: Any) -> keras.Model:
    model.compile(**{"optimizer": "adam", "loss": loss, **more})
    return model


def stacked(*parts: Any, shape: tuple[int, ...] = (4,), **more: Any) -> keras.Model:
    return compiled(keras.Sequential([keras.Input(shape), *parts]), **more)


def functional(
    fn: Callable[[Any], Any], shape: tuple[int, ...] = (4,), dtype: str = "float32"
) -> keras.Model:
    inputs = keras.Input(shape, dtype=dtype)
    return compiled(keras.Model(inputs, fn(inputs)))


def residual(x: Any) -> Any:
    y = layers.BatchNormalization()(layers.Conv2D(3, 3, padding="same", activation="relu")(x))
    y = layers.GlobalAveragePooling2D()(layers.MaxPooling2D()(layers.Add()([x, y])))
    return layers.Dense(10, activation="softmax")(layers.Dropout(0.5)(y))


def transformer(ids: Any) -> Any:
    x = layers.Embedding(20, 8, mask_zero=True)(ids)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, activation="gelu")(x)))
    return layers.Dense(20, activation=keras.activations.softmax)(ops.mean(x, axis=1))


def decoder(x: Any) -> Any:
    _, *states = layers.LSTM(4, return_state=True)(x)
    return layers.LSTM(4)(x, initial_state=states)


def two_towers(ids: Any) -> Any:
    users, items = (layers.Embedding(9, 4)(ids) for _ in range(2))
    return layers.Dot(1, normalize=True)([users, items])


def several_ranks(x: Any) -> Any:
    y = layers.Dense(4)(x)
    return [y, layers.Conv1D(2, 2)(layers.Reshape((2, 2))(y))]


METRICS = ["accuracy", "mae", keras.metrics.AUC, keras.metrics.F1Score, keras.metrics.mean_squared_error]
REGULARIZED = {"kernel_regularizer": "l2", "activity_regularizer": "l1", "bias_constraint": "non_neg"}
PROVED: dict[str, Callable[[], keras.Model]] = {
    "residual network": lambda: functional(residual, (8, 8, 3)),
    "recurrent": lambda: stacked(
        layers.Bidirectional(layers.LSTM(4, return_sequences=True)), layers.GRU(3, dropout=0.2), shape=(5, 4)
    ),
    "cells": lambda: stacked(layers.RNN([layers.LSTMCell(4), layers.GRUCell(4)]), shape=(5, 4)),
    "transformer": lambda: functional(transformer, (6,), "int32"),
    "sequence to sequence": lambda: functional(decoder, (6, 3)),
    "two towers": lambda: functional(two_towers, (), "int32"),
    "several ranks": lambda: functional(several_ranks),
    "nested": lambda: functional(keras.Sequential([layers.Dense(3), layers.ReLU()])),
    "metrics": lambda: stacked(
        layers.Dense(3, activation="sigmoid"), loss="categorical_crossentropy",
        metrics=[part() if isinstance(part, type) else part for part in METRICS], weighted_metrics=["mse"],
    ),
    "regularizers": lambda: stacked(layers.Dense(3, **REGULARIZED)),
    "loss of a class": lambda: stacked(layers.Dense(3), loss=keras.losses.Huber(reduction="sum")),
    "losses of outputs": lambda: compiled(
        functional(lambda x: {"a": layers.Dense(1)(x), "b": layers.Dense(3)(x)}),
        {"a": "binary_crossentropy", "b": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
    ),
    "scaled loss": lambda: stacked(
        layers.Dense(3),
        optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.AdamW(global_clipnorm=1.0)),
    ),
    "text": lambda: functional(
        lambda x: layers.Embedding(5, 2)(layers.TextVectorization(vocabulary=["a", "b"])(x)), (), "string"
    ),
    "operations": lambda: functional(
        lambda x: ops.concatenate([ops.relu(x[:, :2]), ops.softmax(x), ops.reshape(x * 2.0, (-1, 4))], axis=1)
        + ops.sum(x, axis=1, keepdims=True)
    ),
    "products of rows": lambda: functional(lambda x: ops.matmul(x, ops.transpose(x, (0, 2, 1))), (3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVED)
def test_a_model_of_proved_parts(name):
    assert unproved_parts(PROVED[name]()) == []


class Quantizer(layers.Layer):
    def call(self, x: Any) -> Any:
        return x


class OwnDense(layers.Dense):
    pass


class Sparsity(keras.regularizers.Regularizer):
    def __call__(self, x: Any) -> Any:
        return ops.sum(x)


class Adaptive(keras.optimizers.SGD):
    pass


class OwnAUC(keras.metrics.AUC):
    pass


class OwnStep(keras.Model):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


class OwnCall(keras.Model):
    def __init__(self) -> None:
        super().__init__(name="encoder")
        self.dense = layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.dense(x)


def contrastive(y: Any, p: Any) -> Any:
    return ops.mean(p - ops.mean(p, axis=0))


def swapped_call(model: keras.Model) -> keras.Model:
    model.layers[0].call = lambda x: x - ops.mean(x, axis=0)
    return model


def quantized(model: keras.Model) -> keras.Model:
    model.layers[0].quantize("int8")
    return model


def with_loss(loss: Any) -> keras.Model:
    return stacked(layers.Dense(4), loss=loss)


def with_metric(metric: Any) -> keras.Model:
    return stacked(layers.Dense(4), metrics=[metric])


def own_step() -> keras.Model:
    inputs = keras.Input((4,))
    return compiled(OwnStep(inputs, layers.Dense(2)(inputs)))


UNPROVED: dict[str, Callable[[], keras.Model]] = {
    "the layer 'f' (Lambda)": lambda: stacked(layers.Lambda(lambda x: x, name="f")),
    "the layer 'vq' (Quantizer)": lambda: stacked(Quantizer(name="vq")),
    "the layer 'mine' (OwnDense)": lambda: stacked(OwnDense(2, name="mine")),
    "the layer 'encoder' (OwnCall)": lambda: functional(OwnCall()),
    "the layer 'd' (Dense)": lambda: swapped_call(stacked(layers.Dense(4, name="d"))),
    "the layer 's' (Softmax) with axis=0": lambda: stacked(layers.Softmax(axis=0, name="s")),
    "the layer 's' (Softmax) with axis=-2": lambda: stacked(layers.Softmax(axis=-2, name="s")),
    "the layer 'a' (Activation) with activation=softmax": lambda: stacked(
        layers.Activation("softmax", name="a"), layers.Reshape((1,)), shape=()
    ),
    # It is a mean over the rows.
    "the loss 'mse'": lambda: stacked(layers.Flatten(), layers.Reshape(()), shape=(1,)),
    "the layer 'c' (Concatenate) with axis=0": lambda: functional(
        lambda x: layers.Concatenate(axis=0, name="c")([x, x])
    ),
    "the layer 'q' (Attention)": lambda: functional(lambda x: layers.Attention(name="q")([x, x])),
    "the layer 'd' (Dropout) with noise_shape=(1, 4)": lambda: stacked(
        layers.Dropout(0.5, noise_shape=(1, 4), name="d")
    ),
    "the layer 'd' (Dense) with activation=contrastive": lambda: stacked(
        layers.Dense(4, activation=contrastive, name="d")
    ),
    "the layer 'd' (Dense) with activity_regularizer=Sparsity": lambda: stacked(
        layers.Dense(4, activity_regularizer=Sparsity(), name="d")
    ),
    "the layer 'd' (Dense) with activity_regularizer=OrthogonalRegularizer": lambda: stacked(
        layers.Dense(4, activity_regularizer=keras.regularizers.OrthogonalRegularizer(), name="d")
    ),
    "the layer 'd' (Dense) with dtype_policy=QuantizedDTypePolicy": lambda: quantized(
        stacked(layers.Dense(4, name="d"))
    ),
    "the loss 'contrastive'": lambda: with_loss(contrastive),
    "the loss 'dice'": lambda: with_loss(keras.losses.Dice()),
    "the loss 'circle'": lambda: with_loss(keras.losses.Circle()),
    "the loss 'tversky'": lambda: with_loss("tversky"),
    "the loss 'mse' with reduction=None": lambda: with_loss(
        keras.losses.MeanSquaredError(reduction=None, name="mse")
    ),
    "the loss 'cosine' with axis=0": lambda: with_loss(keras.losses.CosineSimilarity(axis=0, name="cosine")),
    "the metric 'contrastive'": lambda: with_metric(contrastive),
    "the metric 'auc'": lambda: with_metric(OwnAUC(name="auc")),
    "the metric 'dice'": lambda: with_metric(keras.losses.Dice()),
    "the metric 'wrapped'": lambda: with_metric(keras.metrics.MeanMetricWrapper(contrastive, name="wrapped")),
    "the metric 'cosine' with axis=0": lambda: with_metric(
        keras.metrics.CosineSimilarity(axis=0, name="cosine")
    ),
    "the optimizer Adaptive": lambda: stacked(layers.Dense(2), optimizer=Adaptive()),
    "train_step()": own_step,
    "the operation 'mean' with axis=0": lambda: functional(lambda x: x - ops.mean(x, axis=0)),
    "the operation 'transpose'": lambda: functional(lambda x: ops.matmul(x, ops.transpose(x))),
    "the operation 'einsum' with subscripts=ab,cb->ac": lambda: functional(
        lambda x: ops.einsum("ab,cb->ac", x, x)
    ),
    "the operation 'softmax' with axis=0": lambda: functional(lambda x: ops.softmax(x, axis=0)),
    "the operation 'cumsum' with axis=0": lambda: functional(lambda x: ops.cumsum(x, axis=0)),
    "the operation 'sort' with axis=0": lambda: functional(lambda x: ops.sort(x[:, :1], axis=0)),
    "the operation 'flip' with axis=0": lambda: functional(lambda x: ops.flip(x, axis=0)),
    "the operation 'get_item'": lambda: functional(lambda x: x[::-1, :]),
    "the operation 'roll' with axis=0": lambda: functional(lambda x: ops.roll(x, 6, axis=0)),
    "the operation 'subtract'": lambda: functional(lambda x: x[:, :1] - x[:, 0]),
    # Its function may mix rows for other values only.
    "the operation 'vectorized_map'": lambda: functional(
        lambda x: ops.vectorized_map(lambda row: 2 * row, x)
    ),
    "the operation 'norm'": lambda: functional(lambda x: x / ops.norm(x)),
}


@pytest.mark.parametrize("name", UNPROVED)
def test_an_unproved_part_is_named(name):
    assert unproved_parts(UNPROVED[name]()) == [name]


@pytest.mark.parametrize("key", [slice(0, 9), slice(9, None), slice(None, None, -1)])
@pytest.mark.parametrize("others", [(slice(None),), ()])
def test_a_slice_of_the_rows(key, others):
    keys = (key, *others) if others else (..., key, slice(None))
    assert unproved_parts(functional(lambda x: x[keys])) == ["the operation 'get_item'"]


@pytest.mark.alone
def test_large_inputs_of_an_operation_take_little_time():
    assert seconds(functional(lambda x: x + x, (1024, 1024, 4))) < 1


def test_an_operation_in_a_nested_model():
    inner = functional(lambda x: x - ops.mean(x, axis=0))
    assert unproved_parts(functional(inner)) == ["the operation 'mean' with axis=0"]


def test_a_subclassed_model_may_do_anything():
    model = compiled(OwnCall())
    model.build((None, 3))
    assert unproved_parts(model) == ["call()"]


def test_a_version_that_was_not_tried_has_no_proved_part(monkeypatch):
    monkeypatch.setattr(keras, "__version__", "3.99.0")
    found = unproved_parts(stacked(layers.Dense(2, name="d"), metrics=["mae"]))
    assert found == ["the loss 'mse'", "the metric 'mae'", "the layer 'd' (Dense)"]


def test_it_changes_no_layer():
    model = PROVED["transformer"]()
    nodes = {operation: len(operation._inbound_nodes) for operation in model.operations}
    unproved_parts(model)
    assert nodes == {operation: len(operation._inbound_nodes) for operation in model.operations}


@pytest.mark.alone
def test_it_takes_little_time():
    model = stacked(*(layers.Dense(4, activation="relu") for _ in range(200)))
    assert min(seconds(model) for _ in range(5)) < 0.02


def seconds(model: keras.Model) -> float:
    began = time.perf_counter()
    assert unproved_parts(model) == []
    return time.perf_counter() - began

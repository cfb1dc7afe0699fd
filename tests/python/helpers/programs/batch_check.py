"""Checks models as a chief does on the first batch, and writes what it warns of.

Usage: batch_check.py FILE VIRTUAL_WORKERS   (the file gets, by the name of a model, the warning, and whether a variable changed)
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import tfdistr
from tfdistr.strategies.build import build
from tfdistr.strategies.exact.batch_check import check_batch
from tfdistr.utils.warn import WARNINGS

rng = np.random.default_rng(0)
X = rng.normal(size=(32, 8)).astype("float32")
Y = rng.normal(size=(32, 4)).astype("float32")
layers = keras.layers

# --- Losses ---------------------------------------------------------------------------------------


def of_each_row(y: Any, p: Any) -> Any:
    return tf.reduce_mean((y - p) ** 2, -1)


def mean_of_rows(y: Any, p: Any) -> Any:
    return tf.reduce_mean(tf.abs(y - p))


def contrastive(y: Any, p: Any) -> Any:
    logits, rows = tf.matmul(p, y, transpose_b=True), tf.range(tf.shape(p)[0])
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(rows, logits))


def gathered(y: Any, p: Any) -> Any:
    return contrastive(tfdistr.gather(y), tfdistr.gather(p))


def sum_of_rows(y: Any, p: Any) -> Any:
    return tf.reduce_sum((y - p) ** 2)


def not_finite(y: Any, p: Any) -> Any:
    return tf.reduce_mean(y - p) * float("nan")


class OfRows(keras.losses.Loss):
    def call(self, y: Any, p: Any) -> Any:
        return of_each_row(y, p)


# --- Layers ---------------------------------------------------------------------------------------


class Sampling(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, x: Any) -> Any:
        self.add_loss(0.1 * tf.reduce_mean(x**2))
        return x + keras.random.normal(tf.shape(x), seed=self.seed_generator)


class SumLoss(layers.Layer):
    def call(self, x: Any) -> Any:
        self.add_loss(0.01 * tf.reduce_sum(x**2))
        return x


class Centred(layers.Layer):
    def call(self, x: Any) -> Any:
        return x - tf.reduce_mean(x, 0)


class Counter(layers.Layer):
    """Changes a variable that Keras does not know."""

    def build(self, shape: Any) -> None:
        self.count = tf.Variable(0.0, trainable=False)

    def call(self, x: Any) -> Any:
        self.count.assign_add(1.0)
        self.add_loss(0.0 * tf.reduce_mean(x))
        return x


# --- Steps ----------------------------------------------------------------------------------------


class Plain(keras.Model):
    def change(self, gradients: Any) -> Any:
        return gradients

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(self.change(gradients), self.trainable_variables)
        return self.get_metrics_result()


class Clipped(Plain):
    def change(self, gradients: Any) -> Any:
        return tf.clip_by_global_norm(gradients, 0.01)[0]


def network(
    *parts: layers.Layer, loss: Any = of_each_row, kind: type[keras.Model] = keras.Model
) -> keras.Model:
    inputs = keras.Input((8,))
    hidden = layers.Dense(8, "relu")(inputs)
    for part in parts:
        hidden = part(hidden)
    model = kind(inputs, layers.Dense(4)(hidden))
    model.compile(keras.optimizers.SGD(0.1), loss)
    return model


def random_layers() -> list[layers.Layer]:
    return [layers.Dropout(0.3), layers.GaussianNoise(0.3), layers.BatchNormalization()]


MODELS: dict[str, Callable[[], keras.Model]] = {
    "contrastive": lambda: network(loss=contrastive),
    "sum": lambda: network(loss=sum_of_rows),
    "sum, random": lambda: network(*random_layers(), loss=sum_of_rows),
    "sum in a layer": lambda: network(SumLoss(), loss="mse"),
    "clipped gradients": lambda: network(kind=Clipped, loss="mse"),
    "mean in a layer": lambda: network(Centred()),
    "not finite": lambda: network(loss=not_finite),
    "rows": network,
    "rows by a class, sum": lambda: network(loss=OfRows(reduction="sum")),
    "mean": lambda: network(*random_layers(), loss=mean_of_rows),
    "gathered": lambda: network(loss=gathered),
    "a plain step": lambda: network(*random_layers(), kind=Plain, loss="mse"),
    "sampling": lambda: network(Sampling()),
    "a counter of steps": lambda: network(Counter()),
    "regularizers": lambda: network(layers.Dense(4, kernel_regularizer="l2", bias_regularizer="l1")),
}


def values(model: keras.Model) -> list[bytes]:
    of_layers = [value for layer in model.layers for value in vars(layer).values()]
    variables = [value for value in of_layers if isinstance(value, tf.Variable)]
    variables += [variable.value for variable in (*model.variables, *model.metrics_variables)]
    local = model.distribute_strategy.experimental_local_results
    return [local(variable)[0].numpy().tobytes() for variable in variables]


def main(file: Path, virtual: str) -> None:
    strategy = tfdistr.MultiWorkerMirroredStrategy(virtual_workers=int(virtual) or None)
    workers, index = strategy.num_workers, strategy.worker_index
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(32 // workers).skip(index).take(1)
    told: dict[str, Any] = {}
    for name, make in MODELS.items():
        warnings: list[tuple[str, ...]] = []
        WARNINGS.tell = lambda *warning, warnings=warnings: warnings.append(warning)
        WARNINGS.note = lambda note, *_, warnings=warnings: warnings.append((note, "note"))
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = make()
        build(model, dataset)
        before = values(model)
        check_batch(strategy.extended, model, lambda: next(iter(dataset)))
        told[name] = {"warnings": warnings, "changed": before != values(model)}
    if index == 0:
        file.write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

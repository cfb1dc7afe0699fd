"""Ordinary cases: losses and metrics of rows."""

from typing import Any

import keras
import numpy as np
from case import BINARY, WEIGHT, WEIGHTED, X, Y, examples
from keras import ops
from models import binary, compiled, dense, layers, losses, metrics, optimizers, stack
from ordinary import NUMBERS, TARGET, ordinary, regressor

ONE_HOT = (X[:101], np.eye(3, dtype="float32")[np.arange(101) % 3])
POSITIVE = (X[:101], np.abs(TARGET) + 0.5)  # some losses divide by it


def network(loss: Any, outputs: int, activation: str | None) -> keras.Model:
    model = stack(layers.Dense(8, "tanh"), layers.Dense(outputs, activation))
    model.compile(optimizers.SGD(0.05), loss)
    return model


#: By the name of a loss: its data, and the activation of the outputs.
LOSSES = {
    "MeanAbsoluteError": (NUMBERS, None),
    "MeanAbsolutePercentageError": (POSITIVE, "softplus"),
    "MeanSquaredLogarithmicError": (POSITIVE, "softplus"),
    "Huber": (NUMBERS, None),
    "LogCosh": (NUMBERS, None),
    "Poisson": (POSITIVE, "softplus"),
    "CosineSimilarity": (ONE_HOT, None),
    "KLDivergence": (ONE_HOT, "softmax"),
    "CategoricalCrossentropy": (ONE_HOT, "softmax"),
    "CategoricalFocalCrossentropy": (ONE_HOT, "softmax"),
    "CategoricalHinge": (ONE_HOT, None),
    "BinaryCrossentropy": (BINARY, "sigmoid"),
    "BinaryFocalCrossentropy": (BINARY, "sigmoid"),
    "Hinge": (BINARY, "tanh"),
    "SquaredHinge": (BINARY, "tanh"),
}


def add(name: str) -> None:
    data, activation = LOSSES[name]

    def build() -> keras.Model:
        return network(getattr(losses, name)(), data[1].shape[1], activation)

    build.__name__ = f"loss_{name}"
    ordinary(build, data=(*data, WEIGHT[:101]), bound=1e-5)


for name in LOSSES:
    add(name)


@ordinary(data=ONE_HOT)
def label_smoothing():
    return network(losses.CategoricalCrossentropy(label_smoothing=0.1), 3, "softmax")


@ordinary(data=NUMBERS)
def huber_by_hand():
    def huber(y_true: Any, y_pred: Any) -> Any:
        error = ops.abs(y_true - y_pred)
        return ops.mean(ops.where(error < 1.0, 0.5 * ops.square(error), error - 0.5), axis=-1)

    return network(huber, 1, None)


@ordinary(data=NUMBERS)
def mean_by_hand():
    """A loss that returns one number, the mean over the rows."""

    def squared(y_true: Any, y_pred: Any) -> Any:
        return ops.mean(ops.square(y_true - y_pred))

    return network(squared, 1, None)


@ordinary(data=NUMBERS)
def quantile_loss():
    class Quantile(losses.Loss):
        def call(self, y_true: Any, y_pred: Any) -> Any:
            error = y_true - y_pred
            return ops.mean(ops.maximum(0.9 * error, -0.1 * error), axis=-1)

    return network(Quantile(), 1, None)


@ordinary(data=BINARY, validation=BINARY)
def many_metrics():
    return binary(
        "accuracy", metrics.AUC(), metrics.Precision(), metrics.Recall(), metrics.MeanSquaredError(),
        metrics.F1Score(threshold=0.5), metrics.BinaryCrossentropy(), metrics.TruePositives(),
    )  # fmt: skip


@ordinary(data=NUMBERS, validation=NUMBERS)
def own_metric_that_sums():
    class Share(metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="share")
            self.near = self.add_weight(shape=(), initializer="zeros")
            self.rows = self.add_weight(shape=(), initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            near = ops.cast(ops.abs(y_true - y_pred) < 0.5, "float32")
            self.near.assign_add(ops.sum(near))
            self.rows.assign_add(ops.cast(ops.size(near), "float32"))

        def result(self) -> Any:
            return ops.divide_no_nan(self.near, self.rows)

    return regressor(stack(layers.Dense(8, "tanh"), layers.Dense(1)), metrics=[Share()])


@ordinary(data=NUMBERS)
def own_metric_of_rows():
    def error_in_percent(y_true: Any, y_pred: Any) -> Any:
        return 100.0 * ops.abs(y_true - y_pred) / (1.0 + ops.abs(y_true))

    return regressor(stack(layers.Dense(8, "tanh"), layers.Dense(1)), metrics=[error_in_percent])


@ordinary(data=WEIGHTED, validation=WEIGHTED)
def weighted_examples():
    return dense(optimizers.SGD(0.1), weighted_metrics=["accuracy"])


@ordinary(class_weight={0: 0.5, 1: 2.0}, validation=examples(50))
def weighted_classes():
    return dense(optimizers.SGD(0.1))


@ordinary
def regularized():
    hidden = layers.Dense(
        8, "tanh", kernel_regularizer=keras.regularizers.L1L2(1e-3, 1e-3), activity_regularizer="l2",
        kernel_constraint=keras.constraints.MaxNorm(1.0), bias_constraint="non_neg",
    )  # fmt: skip
    orthogonal = layers.Dense(4, kernel_regularizer=keras.regularizers.OrthogonalRegularizer())
    return compiled(stack(hidden, orthogonal, layers.Dense(2)), optimizers.SGD(0.1))


@ordinary(data=(X[:101], Y[:101]))
def divergence_of_each_row():
    """A layer that adds the mean over the rows of a value of each."""

    class Sparse(layers.Layer):
        def call(self, inputs: Any) -> Any:
            self.add_loss(0.1 * ops.mean(ops.sum(ops.abs(inputs), axis=-1)))
            return inputs

    return compiled(stack(layers.Dense(8, "tanh"), Sparse(), layers.Dense(2)))

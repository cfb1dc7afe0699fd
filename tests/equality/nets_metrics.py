"""Cases: metrics of the whole batch or of all examples."""

from typing import Any

import keras
import tensorflow as tf
from case import BINARY, case, examples
from keras import ops
from models import binary, dense, layers, metrics, optimizers, stack
from nets import REGRESSION, TARGET, not_silent

METRIC = not_silent("metric|eagerly")


def regression(*measures: Any) -> keras.Model:
    model = stack(layers.Dense(16, "tanh"), layers.Dense(1))
    model.compile(optimizers.SGD(0.05), "mse", metrics=list(measures))
    return model


def r2(y_true: Any, y_pred: Any) -> Any:
    apart = ops.sum(ops.square(y_true - ops.mean(y_true)))
    return 1.0 - ops.sum(ops.square(y_true - y_pred)) / (apart + 1e-3)


def correlation(y_true: Any, y_pred: Any) -> Any:
    a, b = y_true - ops.mean(y_true), y_pred - ops.mean(y_pred)
    return ops.sum(a * b) / ops.sqrt(ops.sum(a * a) * ops.sum(b * b) + 1e-6)


def largest_error(y_true: Any, y_pred: Any) -> Any:
    return ops.max(ops.abs(y_true - y_pred))


@case(data=REGRESSION, **METRIC)
def r2_of_each_batch():
    return regression(r2)


@case(data=REGRESSION, validation=REGRESSION, **METRIC)
def correlation_of_each_batch():
    return regression(correlation)


@case(data=REGRESSION, **METRIC)
def largest_error_of_each_batch():
    return regression(largest_error)


@case(data=REGRESSION, **METRIC)
def root_of_each_batch():
    def rmse(y_true: Any, y_pred: Any) -> Any:
        return ops.sqrt(ops.mean(ops.square(y_true - y_pred)))

    return regression(rmse)


class Largest(metrics.Metric):
    """Its state is a maximum, not a sum."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.value = self.add_weight(shape=(), initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign(ops.maximum(self.value, ops.max(ops.abs(y_true - y_pred))))

    def result(self) -> Any:
        return ops.convert_to_tensor(self.value)


@case(data=REGRESSION, validation=REGRESSION, **METRIC)
def maximum_as_state():
    return regression(Largest())


@case(**METRIC)
def best_accuracy_of_a_batch():
    class Best(metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="best")
            self.best = self.add_weight(shape=(), initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            right = ops.equal(ops.argmax(y_pred, -1), ops.cast(ops.reshape(y_true, (-1,)), "int64"))
            self.best.assign(ops.maximum(self.best, ops.mean(ops.cast(right, "float32"))))

        def result(self) -> Any:
            return ops.convert_to_tensor(self.best)

    return dense(metrics=[Best()])


@case(data=REGRESSION, **METRIC)
def count_of_batches():
    class Batches(metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="batches")
            self.count = self.add_weight(shape=(), initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.count.assign_add(1.0)

        def result(self) -> Any:
            return ops.convert_to_tensor(self.count)

    return regression(Batches())


@case(data=REGRESSION, **METRIC)
def last_value_as_state():
    class Last(metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="last")
            self.value = self.add_weight(shape=(), initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.value.assign(ops.mean(ops.square(y_true - y_pred)))

        def result(self) -> Any:
            return ops.convert_to_tensor(self.value)

    return regression(Last())


@case(data=REGRESSION, **METRIC)
def moving_average_as_state():
    class Moving(Largest):
        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.value.assign(0.9 * self.value + 0.1 * ops.mean(ops.square(y_true - y_pred)))

    return regression(Moving())


@case(data=REGRESSION)
def ratio_of_sums():
    """R squared over all examples, from four sums that rows add up."""

    class Score(metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="score")
            self.sums = self.add_weight(shape=(4,), initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            parts = ops.ones_like(y_true), y_true, ops.square(y_true), ops.square(y_true - y_pred)
            self.sums.assign_add(ops.stack([ops.sum(part) for part in parts]))

        def result(self) -> Any:
            count, total, squares, wrong = ops.unstack(ops.convert_to_tensor(self.sums))
            return 1.0 - wrong / (squares - total * total / count)

    return regression(Score())


@case(data=REGRESSION, **METRIC)
def list_of_all_predictions():
    """Keeps what it has seen in a Python list."""

    class Median(metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="median")
            self.seen: list[Any] = []

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.seen.append(ops.reshape(y_pred, (-1,)))

        def result(self) -> Any:
            return ops.median(ops.concatenate(self.seen)) if self.seen else ops.zeros(())

        def reset_state(self) -> None:
            self.seen.clear()

    model = regression(Median())
    model.run_eagerly = True
    return model


@case(data=REGRESSION, validation=REGRESSION, **METRIC)
def buffer_of_predictions():
    """Keeps the last values in a variable, and gives their quantile."""

    class Quantile(metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="quantile")
            self.buffer = self.add_weight(shape=(64,), initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.buffer.assign(ops.concatenate([ops.reshape(y_pred, (-1,)), self.buffer])[:64])

        def result(self) -> Any:
            return ops.quantile(ops.convert_to_tensor(self.buffer), 0.9)

    return regression(Quantile())


@case(data=REGRESSION, validation=REGRESSION)
def r2_score_of_keras():
    return regression(metrics.R2Score(), metrics.RootMeanSquaredError())


@case(data=(REGRESSION[0], (TARGET > 0).astype("float32")))
def measures_at_thresholds():
    return binary(
        metrics.PrecisionAtRecall(0.7), metrics.RecallAtPrecision(0.6),
        metrics.SensitivityAtSpecificity(0.5), metrics.AUC(multi_label=True, num_labels=1),
    )  # fmt: skip


@case(data=BINARY)
def confusion_of_keras():
    return binary(
        metrics.BinaryIoU(), metrics.FalsePositives(), metrics.TrueNegatives(), metrics.FBetaScore(beta=2.0)
    )


@case(validation=examples(50))
def kappa_of_a_matrix():
    """A confusion matrix of its own, whose kappa is a function of all counts."""

    class Kappa(metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="kappa")
            self.counts = self.add_weight(shape=(2, 2), initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            truth, chosen = tf.reshape(y_true, [-1]), tf.argmax(y_pred, -1)
            self.counts.assign_add(tf.math.confusion_matrix(truth, chosen, 2, dtype=tf.float32))

        def result(self) -> Any:
            counts = ops.convert_to_tensor(self.counts)
            total = ops.sum(counts)
            chance = ops.sum(ops.sum(counts, 0) * ops.sum(counts, 1)) / (total * total)
            return (ops.trace(counts) / total - chance) / (1.0 - chance + 1e-6)

    return dense(metrics=[Kappa()])

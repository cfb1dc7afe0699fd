"""Checks models as a chief does on the first batch, and writes what it warns of.

Usage: batch_check.py FILE VIRTUAL_WORKERS   (0 for none)

FILE gets, by the name of a model, the warnings, and whether a variable changed.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdistr
from tfdistr.strategies.build import build
from tfdistr.strategies.exact import batch_check
from tfdistr.strategies.exact.prediction_check import check_predictions
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


def triplets(y: Any, p: Any) -> Any:
    """A loss that is 0 if no two rows are of one class."""
    classes = tf.argmax(y, -1)
    same = tf.cast(classes[:, None] == classes[None], p.dtype) - tf.eye(tf.shape(p)[0])
    return tf.reduce_sum(same * tf.reduce_sum((p[:, None] - p[None]) ** 2, -1)) / tf.cast(tf.size(p), p.dtype)


def correlation(y: Any, p: Any) -> Any:
    y, p = y - tf.reduce_mean(y), p - tf.reduce_mean(p)
    return tf.reduce_sum(y * p) / tf.sqrt(tf.reduce_sum(y**2) * tf.reduce_sum(p**2))


class OfRows(keras.losses.Loss):
    def call(self, y: Any, p: Any) -> Any:
        return of_each_row(y, p)


# --- Metrics --------------------------------------------------------------------------------------


class Largest(keras.metrics.Metric):
    def __init__(self) -> None:
        super().__init__(name="largest")
        self.value = self.add_variable((), "zeros", name="value")

    def update_state(self, y: Any, p: Any, sample_weight: Any = None) -> None:
        self.value.assign(tf.maximum(self.value, tf.reduce_max(tf.abs(y - p))))

    def result(self) -> Any:
        return self.value


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


class Zeros(layers.Dense):
    """Begins with weights of 0: two of them hide what is before, if nothing changes the weights."""

    def __init__(self) -> None:
        super().__init__(4, kernel_initializer="zeros")


class Codes(layers.Layer):
    """Moves its codes with the means of its inputs, which no gradient shows."""

    def build(self, shape: Any) -> None:
        self.codes = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, name="codes")

    def call(self, x: Any) -> Any:
        self.codes.assign(0.9 * self.codes + 0.1 * tf.reduce_mean(x, 0))
        return x + 0.0 * self.codes


class Rows(layers.Layer):
    def build(self, shape: Any) -> None:
        self.rows = self.add_weight(shape=(), initializer="zeros", trainable=False, name="rows")

    def call(self, x: Any) -> Any:
        self.rows.assign_add(tf.cast(tf.shape(x)[0], tf.float32))
        return x


class OwnDropout(layers.Layer):
    def call(self, x: Any) -> Any:
        return tf.nn.dropout(x, 0.5)


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


class SumInComputeLoss(keras.Model):
    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
        return tf.reduce_sum((y - y_pred) ** 2)


class HardExamples(keras.Model):
    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            losses = tf.reduce_mean((y - self(x, training=True)) ** 2, -1)
            loss = tf.reduce_mean(tf.math.top_k(losses, tf.shape(losses)[0] // 4).values)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class Logs(Plain):
    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        return {**logs, "sum": tf.reduce_sum(data[1]), "mean": tf.reduce_mean(data[0]), "rate": 0.1}


class LargestLog(Plain):
    def train_step(self, data: Any) -> Any:
        return {**super().train_step(data), "largest": tf.reduce_max(data[0])}


class Accumulated(keras.Model):
    """Applies the mean gradient of two steps."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        for kept, gradient in zip(self.kept, tape.gradient(loss, self.trainable_variables), strict=True):
            kept.assign_add(gradient / 2)
        self.number.assign_add(1)
        tf.cond(self.number == 2, self.apply_kept, lambda: None)
        return self.get_metrics_result()

    def apply_kept(self) -> None:
        self.optimizer.apply([tf.convert_to_tensor(v) for v in self.kept], self.trainable_variables)
        for kept in self.kept:
            kept.assign(tf.zeros_like(kept))
        self.number.assign(0)


def accumulated() -> keras.Model:
    model = network(kind=Accumulated, loss="mse")
    model.kept = [tf.Variable(tf.zeros(v.shape), trainable=False) for v in model.trainable_variables]
    model.number = tf.Variable(0, trainable=False)
    return model


class Scheduled(Plain):
    """Changes its learning rate by itself."""

    def train_step(self, data: Any) -> Any:
        self.optimizer.learning_rate.assign(self.optimizer.learning_rate * 0.5)
        return super().train_step(data)


class Idle(keras.Model):
    def train_step(self, data: Any) -> Any:
        return {"loss": tf.reduce_mean(self(data[0]))}


class OfAllRows(Plain):
    def train_step(self, data: Any) -> Any:
        tf.debugging.assert_equal(tf.shape(data[0])[0], 16)
        return super().train_step(data)


class KeepsLargest(Plain):
    """Gives its metric one number for a batch, and not its rows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.largest = Largest()

    def train_step(self, data: Any) -> Any:
        self.largest.update_state(0.0, tf.reduce_max(data[0]))
        return super().train_step(data)


class TestedOtherwise(Plain):
    """Uses the loss of ``compile()`` in its training step only."""

    def test_step(self, data: Any) -> Any:
        return {"size": tf.reduce_mean(self(data[0]))}


class Relative(Plain):
    def predict_step(self, data: Any) -> Any:
        outputs = self(data[0])
        return outputs / tf.reduce_max(outputs)


class Failing(keras.Model):
    def train_step(self, data: Any) -> Any:
        raise ValueError("the first step")


def eager() -> keras.Model:
    model = network(loss=contrastive)
    model.run_eagerly = True
    return model


def network(
    *parts: layers.Layer,
    loss: Any = of_each_row,
    kind: type[keras.Model] = keras.Model,
    metrics: Sequence[Any] = (),
) -> keras.Model:
    inputs = keras.Input((8,))
    hidden = layers.Dense(8, "relu")(inputs)
    for part in parts:
        hidden = part(hidden)
    model = kind(inputs, layers.Dense(4)(hidden))
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=list(metrics))
    return model


def random_layers() -> list[layers.Layer]:
    return [layers.Dropout(0.3), layers.GaussianNoise(0.3), layers.BatchNormalization(synchronized=True)]


MODELS: dict[str, Callable[[], keras.Model]] = {
    "sum, random": lambda: network(*random_layers(), loss=sum_of_rows),
    "sum in a layer": lambda: network(SumLoss(), loss="mse"),
    "sum in compute_loss": lambda: network(*random_layers(), kind=SumInComputeLoss),
    "clipped gradients": lambda: network(kind=Clipped, loss="mse"),
    "mean before zeros": lambda: network(Centred(), Zeros(), Zeros()),
    "moving codes": lambda: network(Codes()),
    "counted rows": lambda: network(Rows()),
    "hard examples": lambda: network(kind=HardExamples, loss="mse"),
    "the largest as a log": lambda: network(kind=LargestLog, loss="mse"),
    "an own dropout": lambda: network(OwnDropout()),
    "triplets": lambda: network(loss=triplets),
    "Dice": lambda: network(loss=keras.losses.Dice()),
    "a function as a metric": lambda: network(metrics=[correlation]),
    "the largest": lambda: network(metrics=[Largest()]),
    "logs": lambda: network(kind=Logs, loss="mse"),
    "accumulated": accumulated,
    "eager": eager,
    "large": lambda: network(loss=contrastive),
    "a learning rate": lambda: network(kind=Scheduled, loss="mse"),
    "a loss that no test uses": lambda: network(kind=TestedOtherwise, loss=contrastive),
    "one number": lambda: network(kind=KeepsLargest, loss="mse"),
    "no update": lambda: network(kind=Idle),
    "a number of rows": lambda: network(kind=OfAllRows, loss="mse"),
    "slow": lambda: network(loss=contrastive),
    "unreadable": lambda: network(loss=contrastive),
    "read once": lambda: network(loss=contrastive),
    "no rows": lambda: network(loss=contrastive),
    "predictions": lambda: network(kind=Relative, loss="mse"),
    "a failing step": lambda: network(kind=Failing),
    "not finite": lambda: network(loss=not_finite),
    "rows by a class, sum": lambda: network(loss=OfRows(reduction="sum")),
    "mean": lambda: network(*random_layers(), loss=mean_of_rows),
    "gathered": lambda: network(loss=gathered),
    "sampling": lambda: network(Sampling()),
    "a counter of steps": lambda: network(Counter()),
    "regularizers": lambda: network(layers.Dense(4, kernel_regularizer="l2", bias_regularizer="l1")),
}


def unreadable() -> Any:
    raise ValueError("no such file")


LOOKS: dict[str, Callable[[], Any]] = {
    "unreadable": unreadable,
    "read once": lambda: None,
    "no rows": lambda: (X[:0], Y[:0]),
}


def values(model: keras.Model) -> list[bytes]:
    of_layers = [value for layer in model.layers for value in vars(layer).values()]
    variables = [value for value in of_layers if isinstance(value, tf.Variable)]
    own = (*model.variables, *model.metrics_variables, *model.optimizer.variables)
    variables += [variable.value for variable in own]
    local = model.distribute_strategy.experimental_local_results
    return [local(variable)[0].numpy().tobytes() for variable in variables]


def main(file: Path, virtual: str) -> None:
    strategy = tfdistr.MultiWorkerMirroredStrategy(virtual_workers=int(virtual) or None)
    workers, index = strategy.num_workers, strategy.worker_index
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(32 // workers).skip(index).take(1)
    told: dict[str, Any] = {}
    largest = batch_check.LARGEST_WEIGHTS
    for name, make in MODELS.items():
        warnings: list[tuple[str, ...]] = []
        WARNINGS.tell = lambda *warning, warnings=warnings: warnings.append(warning)
        WARNINGS.note = lambda note, *_, warnings=warnings: warnings.append((note, "note"))
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = make()
        build(model, dataset)
        before = values(model)
        batch_check.LARGEST_WEIGHTS = 10 if name == "large" else largest
        batch_check.LONGEST = 0.0 if name == "slow" else 10.0
        look = LOOKS.get(name, lambda: next(iter(dataset)))
        try:
            batch_check.check_batch(strategy.extended, model, look)
            if name == "a loss that no test uses":
                batch_check.check_batch(strategy.extended, model, look, kind="test")
                told["decided"] = list(strategy.extended.known.of(model).over_batch.losses)
            if name == "predictions":
                check_predictions(strategy.extended, model, look)
        except tfdistr.TfdistrError as error:  # virtual workers refuse some steps
            warnings.append((str(error), "refused"))
        told[name] = {"warnings": warnings, "changed": before != values(model)}
    if index == 0:
        file.write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

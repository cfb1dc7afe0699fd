"""Cases: steps that choose or mix rows, that change gradients, or that log numbers of their own."""

from typing import Any

import keras
import tensorflow as tf
from case import case
from keras import ops
from models import callbacks, optimizers
from nets import REGRESSION, OwnStep, not_silent, stepping

ROWS = {"data": REGRESSION, **not_silent("rows|loss|gradient|step|batch")}
GRADIENTS = {"data": REGRESSION, **not_silent("gradient|step")}


def errors(y: Any, predicted: Any) -> Any:
    return ops.mean(ops.square(y - predicted), axis=-1)


@case(**ROWS)
def hard_examples():
    """Only the 4 largest errors of the batch count."""

    class Hard(OwnStep):
        def loss_of(self, x: Any, y: Any, predicted: Any) -> Any:
            values = errors(y, predicted)
            return ops.mean(ops.top_k(values, ops.minimum(4, ops.shape(values)[0]))[0])

    return stepping(Hard())


@case(**ROWS)
def without_the_worst():
    """Leaves out the largest error of the batch, as a trimmed mean does."""

    class Trimmed(OwnStep):
        def loss_of(self, x: Any, y: Any, predicted: Any) -> Any:
            values = errors(y, predicted)
            kept = ops.cast(values < ops.max(values), "float32")
            return ops.sum(values * kept) / ops.maximum(ops.sum(kept), 1.0)

    return stepping(Trimmed())


@case(**ROWS)
def above_the_median():
    class Half(OwnStep):
        def loss_of(self, x: Any, y: Any, predicted: Any) -> Any:
            values = errors(y, predicted)
            return ops.mean(values * ops.cast(values >= ops.median(values), "float32"))

    return stepping(Half())


@case(**ROWS)
def mixed_rows():
    """Mixup with the batch in reverse."""

    class Mixup(OwnStep):
        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            return super().train_step((0.7 * x + 0.3 * x[::-1], 0.7 * y + 0.3 * y[::-1]))

    return stepping(Mixup())


@case(**ROWS)
def shuffled_column():
    """Each row gets a column of the row before it, so that the network must not rely on it."""

    class Shuffled(OwnStep):
        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            return super().train_step((ops.concatenate([ops.roll(x[:, :1], 1, axis=0), x[:, 1:]], 1), y))

    return stepping(Shuffled())


@case(**ROWS)
def standardized_in_the_step():
    class Standardized(OwnStep):
        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            return super().train_step(((x - ops.mean(x, axis=0)) / (ops.std(x, axis=0) + 0.1), y))

    return stepping(Standardized())


@case(**GRADIENTS)
def clipped_in_the_step():
    class Clipped(OwnStep):
        def changed(self, gradients: list[Any]) -> list[Any]:
            return [ops.clip(gradient, -0.05, 0.05) for gradient in gradients]

    return stepping(Clipped())


@case(**GRADIENTS)
def clipped_by_global_norm():
    class Clipped(OwnStep):
        def changed(self, gradients: list[Any]) -> list[Any]:
            return tf.clip_by_global_norm(gradients, 0.1)[0]

    return stepping(Clipped())


@case(**GRADIENTS)
def signs_of_gradients():
    class Signs(OwnStep):
        def changed(self, gradients: list[Any]) -> list[Any]:
            return [ops.sign(gradient) for gradient in gradients]

    return stepping(Signs(), optimizers.SGD(0.005))


@case(**GRADIENTS)
def noise_on_gradients():
    """All workers draw the same noise from Keras's global generator."""

    class Noisy(OwnStep):
        def changed(self, gradients: list[Any]) -> list[Any]:
            return [gradient + keras.random.normal(gradient.shape, stddev=0.1) for gradient in gradients]

    return stepping(Noisy())


@case(data=REGRESSION)
def centralized_gradients():
    """A linear change of gradients commutes with their mean."""

    class Centralized(OwnStep):
        def changed(self, gradients: list[Any]) -> list[Any]:
            return [g - ops.mean(g, axis=0, keepdims=True) if g.ndim > 1 else g for g in gradients]

    return stepping(Centralized())


@case(**GRADIENTS)
def sharpness_aware():
    """SAM: a second gradient, at a place that the first one chooses."""

    class Sharpness(OwnStep):
        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            first = tape.gradient(loss, self.trainable_variables)
            moves = [gradient * 0.05 / (tf.linalg.global_norm(first) + 1e-12) for gradient in first]
            for variable, move in zip(self.trainable_variables, moves, strict=True):
                variable.assign_add(move)
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = self.compute_loss(x, y, predicted)
            gradients = tape.gradient(loss, self.trainable_variables)
            for variable, move in zip(self.trainable_variables, moves, strict=True):
                variable.assign_sub(move)
            self.optimizer.apply(gradients, self.trainable_variables)
            return self.compute_metrics(x, y, predicted)

    return stepping(Sharpness())


@case(data=REGRESSION, **not_silent("gradient|step|variable|condition"))
def accumulated_in_a_condition():
    """Adds up the gradients of two steps in variables of its own, and applies them in ``tf.cond``."""

    class Accumulating(OwnStep):
        def __init__(self) -> None:
            super().__init__()
            self.build_layers()
            self.steps = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False)
            self.sums = [
                self.add_weight(shape=variable.shape, initializer="zeros", trainable=False)
                for variable in self.trainable_variables
            ]

        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = self.compute_loss(x, y, predicted)
            gradients = tape.gradient(loss, self.trainable_variables)
            for total, gradient in zip(self.sums, gradients, strict=True):
                total.assign_add(gradient)
            self.steps.assign_add(1)
            tf.cond(self.steps.value % 2 == 0, self.apply_sums, lambda: None)
            return self.compute_metrics(x, y, predicted)

        def apply_sums(self) -> None:
            self.optimizer.apply([total.value / 2.0 for total in self.sums], self.trainable_variables)
            for total in self.sums:
                total.assign(ops.zeros_like(total))

    return stepping(Accumulating())


@case(**GRADIENTS)
def private_gradients():
    """DP-SGD without its noise: the gradient of each row is clipped by itself, then they are averaged."""

    class Private(OwnStep):
        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                values = errors(y, predicted)
            each = tape.jacobian(values, self.trainable_variables)
            squares = [ops.sum(ops.reshape(ops.square(g), (ops.shape(x)[0], -1)), axis=1) for g in each]
            scale = ops.minimum(1.0, 0.5 / ops.sqrt(sum(squares) + 1e-9))
            gradients = [tf.tensordot(scale, g, 1) / ops.cast(ops.shape(x)[0], "float32") for g in each]
            self.optimizer.apply(gradients, self.trainable_variables)
            return self.compute_metrics(x, y, predicted)

    return stepping(Private())


# --- Numbers in logs ------------------------------------------------------------------------------

LOGS = not_silent("log |logs|metric|train_step|test_step|predict_step")


def plateau(monitor: str, min_delta: float) -> keras.callbacks.Callback:
    return callbacks.ReduceLROnPlateau(monitor, factor=0.5, patience=0, min_delta=min_delta, mode="min")


@case(data=REGRESSION, epochs=4, **LOGS,
      callbacks=lambda: [plateau("largest", 0.05)])  # fmt: skip
def number_in_logs():
    """The learning rate follows a plain number that the step returns: the largest error of the last batch."""

    class Logging(OwnStep):
        def logs(self, y: Any, predicted: Any) -> dict[str, Any]:
            return {"largest": ops.max(ops.abs(y - predicted))}

    return stepping(Logging())


@case(data=REGRESSION, epochs=4, **LOGS,
      callbacks=lambda: [plateau("total", 0.5)])  # fmt: skip
def sum_in_logs():
    class Logging(OwnStep):
        def logs(self, y: Any, predicted: Any) -> dict[str, Any]:
            return {"total": ops.sum(ops.square(y - predicted))}

    return stepping(Logging())


@case(data=REGRESSION, **LOGS)
def count_and_rate_in_logs():
    class Logging(OwnStep):
        def logs(self, y: Any, predicted: Any) -> dict[str, Any]:
            rows = ops.shape(y)[0]
            return {"rows": rows, "rate": self.optimizer.learning_rate, "rmse": ops.sqrt(
                ops.mean(ops.square(y - predicted)))}  # fmt: skip

    return stepping(Logging())


@case(data=REGRESSION, validation=REGRESSION, epochs=4, **LOGS,
      callbacks=lambda: [callbacks.EarlyStopping("val_rmse", 0.02, patience=0, mode="min")])  # fmt: skip
def numbers_of_validation():
    """A test step that returns the root of a mean and a sum, on the first of which training stops."""

    class Logging(OwnStep):
        def test_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            square = ops.square(y - self(x, training=False))
            return {"rmse": ops.sqrt(ops.mean(square)), "total": ops.sum(square)}

    return stepping(Logging())


@case(data=REGRESSION, **LOGS)
def norm_of_gradients_in_logs():
    class Logging(OwnStep):
        def changed(self, gradients: list[Any]) -> list[Any]:
            self.norm = tf.linalg.global_norm(gradients)
            return gradients

        def logs(self, y: Any, predicted: Any) -> dict[str, Any]:
            return {"norm": self.norm}

    return stepping(Logging())


@case(data=REGRESSION, **LOGS)
def custom_predict_step():
    """Predictions relative to the largest of their batch."""

    class Relative(OwnStep):
        def predict_step(self, data: Any) -> Any:
            x, *_ = keras.utils.unpack_x_y_sample_weight(data)
            predicted = self(x, training=False)
            return predicted / ops.max(ops.abs(predicted))

    return stepping(Relative())

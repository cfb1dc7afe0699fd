"""Cases: what steps and optimizers of the user's own do with gradients, losses and states."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from case import X, case
from models import IN_A_CONDITION, layers, losses, optimizers

WANTED = (2.0 * X[:, :1] - X[:, 1:2])[:101]
DATA = {"data": (X[:101], WANTED)}
WEIGHTS = np.random.default_rng(4).uniform(0.5, 1.5, size=101).astype("float32")
SERIES = np.random.default_rng(5).normal(size=(96, 5, 4)).astype("float32")
ENDS = SERIES.sum(axis=(1, 2), keepdims=True)[:, 0] / 4
REFUSED = "virtual workers refuse it by name"

Gradients = Sequence[Any]


class OwnStep(keras.Model):
    """The step of a guide; subclasses change its gradients."""

    def __init__(self, *ends: Any) -> None:
        inputs = keras.Input((8,))
        super().__init__(*(ends or (inputs, layers.Dense(1)(layers.Dense(6, "tanh")(inputs)))))

    def gradients(self, x: Any, y: Any) -> tuple[Any, Gradients]:
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted)
        return predicted, tape.gradient(loss, self.trainable_variables)

    def changed(self, gradients: Gradients) -> Gradients:
        return gradients

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        predicted, gradients = self.gradients(x, y)
        self.optimizer.apply(self.changed(gradients), self.trainable_variables)
        return self.compute_metrics(x, y, predicted)


def compiled(model: keras.Model, optimizer: Any = None, loss: Any = "mse", **arguments: Any) -> keras.Model:
    model.compile(optimizer or optimizers.SGD(0.05), loss, **arguments)
    return model


def network(optimizer: Any = None, loss: Any = "mse") -> keras.Model:
    hidden, out = layers.Dense(6, "tanh"), layers.Dense(1)
    return compiled(keras.Sequential([keras.Input((8,)), hidden, out]), optimizer, loss)


# --- Gradients ------------------------------------------------------------------------------------


class Clipped(OwnStep):
    def changed(self, gradients: Gradients) -> Gradients:
        return tf.clip_by_global_norm(gradients, 0.1)[0]


@case(**DATA)
def clipped_by_the_step():
    return compiled(Clipped())


class Compiled(OwnStep):
    @tf.function
    def train_step(self, data: Any) -> dict[str, Any]:
        return super().train_step(data)

    def changed(self, gradients: Gradients) -> Gradients:
        return [tf.sign(gradient) for gradient in gradients]


@case(**DATA)
def signs_in_a_compiled_step():
    return compiled(Compiled(), optimizers.SGD(0.01))


class OwnFunction(OwnStep):
    """TensorFlow may call the function again without tracing it."""

    @tf.function
    def gradients(self, x: Any, y: Any) -> tuple[Any, Gradients]:
        return super().gradients(x, y)


@case(**DATA)
def gradients_of_an_own_function():
    return compiled(OwnFunction())


class Accumulates(OwnStep):
    """Applies the sum of the gradients of three steps, which it keeps in variables."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = tf.Variable(0, trainable=False)
        self.kept = [tf.Variable(tf.zeros_like(v), trainable=False) for v in self.trainable_variables]

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        predicted, gradients = self.gradients(x, y)
        self.steps.assign_add(1)
        for kept, gradient in zip(self.kept, gradients, strict=True):
            kept.assign_add(gradient)
        tf.cond(tf.equal(self.steps, 3), self.apply_kept, lambda: None)
        return self.compute_metrics(x, y, predicted)

    def apply_kept(self) -> None:
        self.optimizer.apply_gradients(zip(self.kept, self.trainable_variables, strict=True))
        self.steps.assign(0)
        for kept in self.kept:
            kept.assign(tf.zeros_like(kept))


@case(**DATA, epochs=3, not_virtual=REFUSED, not_mirrored=IN_A_CONDITION)
def gradients_kept_in_variables():
    return compiled(Accumulates())


@case(**DATA, epochs=3, not_virtual=REFUSED)
def accumulated_gradients_eagerly():
    return compiled(Accumulates(), run_eagerly=True)


class SharpnessAware(OwnStep):
    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        predicted, gradients = self.gradients(x, y)
        norm = tf.linalg.global_norm(gradients) + 1e-6
        moves = [0.05 * gradient / norm for gradient in gradients]
        for variable, move in zip(self.trainable_variables, moves, strict=True):
            variable.assign_add(move)
        _, gradients = self.gradients(x, y)
        for variable, move in zip(self.trainable_variables, moves, strict=True):
            variable.assign_sub(move)
        self.optimizer.apply(gradients, self.trainable_variables)
        return self.compute_metrics(x, y, predicted)


@case(**DATA, not_virtual=REFUSED)
def sharpness_aware_step():
    return compiled(SharpnessAware())


# --- Optimizers -----------------------------------------------------------------------------------


class AdaptiveClipping(optimizers.SGD):
    """Clips each gradient by the norm of its weight, and then each by its own norm."""

    def apply_gradients(self, grads_and_vars: Any) -> Any:
        clipped = []
        for gradient, variable in grads_and_vars:
            limit = 0.05 * tf.maximum(tf.norm(variable), 1e-3)
            clipped.append((gradient * limit / tf.maximum(tf.norm(gradient), limit), variable))
        return super().apply_gradients(clipped)

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        return super().apply([g / (0.1 + tf.norm(g)) for g in grads], trainable_variables)


@case(**DATA)
def adaptive_clipping():
    return network(AdaptiveClipping(0.1))


class Wrapper(optimizers.Optimizer):
    """Changes the gradients for an optimizer in it."""

    def __init__(self, inner: Any) -> None:
        super().__init__(learning_rate=0.0, name="wrapper")
        self.inner = inner

    def build(self, variables: Any) -> None:
        if not self.built:
            super().build(variables)
            self.inner.build(variables)

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        self.inner.apply([g / (0.1 + tf.norm(g)) for g in grads], trainable_variables)
        self.iterations.assign_add(1)


@case(**DATA)
def optimizer_in_an_optimizer():
    return network(Wrapper(optimizers.SGD(0.05, momentum=0.5)))


class Nested(OwnStep):
    def __init__(self) -> None:
        super().__init__()
        self.by_part = {"all": [optimizers.SGD(0.05, momentum=0.5)]}

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        predicted, gradients = self.gradients(x, y)
        self.by_part["all"][0].apply(gradients, self.trainable_variables)
        return self.compute_metrics(x, y, predicted)


@case(**DATA)
def optimizer_in_a_list_in_a_dictionary():
    return compiled(Nested())


# --- Losses without a reduction: Keras takes the gradient of their sum ----------------------------


@case(data=(X[:101], WANTED, WEIGHTS))
def no_reduction():
    return network(optimizers.SGD(0.002), losses.MeanSquaredError(reduction=None))


@case(data=(X[:101], {"a": WANTED, "b": WANTED}))
def no_reduction_of_one_of_two_outputs():
    inputs = keras.Input((8,))
    hidden = layers.Dense(4, "tanh")(inputs)
    model = keras.Model(inputs, {name: layers.Dense(1, name=name)(hidden) for name in ("a", "b")})
    loss = {"a": losses.MeanSquaredError(reduction="none"), "b": "mse"}
    model.compile(optimizers.SGD(0.0005), loss, loss_weights={"a": 0.5, "b": 2.0})
    return model


class Triplets(keras.Model):
    """The step of Keras's example of a siamese network: ``call()`` takes the batch, the loss is a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = keras.Sequential([keras.Input((8,)), layers.Dense(4)])
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.tracker]

    def call(self, inputs: Any) -> Any:
        anchor, near, far = (self.embedding(part) for part in inputs)
        return tf.reduce_sum((anchor - near) ** 2, -1), tf.reduce_sum((anchor - far) ** 2, -1)

    def loss_of(self, data: Any) -> Any:
        near, far = self(data)
        return tf.maximum(near - far + 0.5, 0.0)

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = self.loss_of(data)
        variables = self.embedding.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    def test_step(self, data: Any) -> dict[str, Any]:
        self.tracker.update_state(self.loss_of(data))
        return {"loss": self.tracker.result()}


def triples() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X[:101], X[:101] * 0.5, X[100::-1])).batch(32)


@case(data=triples, predicts=False, drop_in_only="the model cannot be called with x alone")
def triplets():
    model = Triplets()
    model.compile(optimizers.SGD(0.001))
    return model


# --- States and logs ------------------------------------------------------------------------------

SHARED_STATES = "the replicas of one process share the states"


STATEFUL = {"data": (SERIES, ENDS), "held_out": (SERIES[:32], ENDS[:32]), "predicts": False}


@case(**STATEFUL, not_mirrored=SHARED_STATES, not_virtual=REFUSED)
def stateful_layers():
    both = layers.Bidirectional(layers.GRU(3, stateful=True, return_sequences=True))
    parts = [both, layers.LSTM(4, stateful=True), layers.Dense(1)]
    return compiled(keras.Sequential([keras.Input(batch_shape=(32, 5, 4)), *parts]))


class OtherLogs(OwnStep):
    """Its logs have numbers of Python, a value that is none, and a vector."""

    def train_step(self, data: Any) -> dict[str, Any]:
        logs = super().train_step(data)
        return {**logs, "one": 1, "half": 0.5, "none": None, "weights": tf.constant([0.25, 0.75])}


@case(**DATA)
def other_logs():
    return compiled(OtherLogs())


class OverNorm(keras.Model):
    """A step whose loss is a vector or a mean, over a normalization with the rows of all workers."""

    def __init__(self, each: bool) -> None:
        super().__init__()
        self.each = each
        self.parts = [layers.Dense(6, "tanh"), layers.BatchNormalization(synchronized=True), layers.Dense(1)]

    def call(self, x: Any, training: bool = False) -> Any:
        hidden = self.parts[1](self.parts[0](x), training=training)
        return self.parts[2](hidden)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = tf.reduce_mean(tf.square(y - predicted), axis=1)
            loss = loss if self.each else tf.reduce_mean(loss)
        gradients = tape.gradient(loss, self.trainable_variables)
        if self.each:
            gradients = [gradient / 101 for gradient in gradients]
        self.optimizer.apply(gradients, self.trainable_variables)
        return self.compute_metrics(x, y, predicted)


@case(**DATA)
def vector_loss_over_synchronized_norm():
    return compiled(OverNorm(each=True))


@case(**DATA)
def mean_loss_over_synchronized_norm():
    return compiled(OverNorm(each=False))

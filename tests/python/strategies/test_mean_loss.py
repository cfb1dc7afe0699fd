"""Which losses of custom steps are reported; on two workers and devices: test_(multi_worker_)mirrored.py."""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import losses

import tfdistr
from tfdistr.strategies import mean_loss
from tfdistr.strategies.mean_loss import warn_of_means

CLASSES = np.array([0, 1, 1, 0])
ROWS = np.eye(2, dtype="float32")[CLASSES]
SAID = (
    "The loss of a step is the mean over its own rows, and the optimizer sums the gradients of 2 workers: "
    "they are 2 times those of one worker. Replace the mean by tfdistr.average_loss(losses)."
)

Loss = Callable[[tf.Tensor], tf.Tensor]
MEANS: dict[str, Loss] = {
    "classes": lambda p: tf.reduce_mean(
        losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")(CLASSES, p)
    ),
    "probabilities": lambda p: tf.reduce_mean(
        losses.sparse_categorical_crossentropy(CLASSES, tf.nn.softmax(p))
    ),
    "one-hot": lambda p: tf.reduce_mean(losses.categorical_crossentropy(ROWS, p, from_logits=True)),
    "binary": lambda p: tf.reduce_mean(losses.binary_crossentropy(ROWS, tf.sigmoid(p))),
    "binary logits": lambda p: tf.reduce_mean(losses.binary_crossentropy(ROWS, p, from_logits=True)),
    "absolute": lambda p: keras.ops.mean(losses.mean_absolute_error(ROWS, p)),
    "of TensorFlow": lambda p: tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(CLASSES, p)),
    "by hand": lambda p: tf.reduce_mean((p - ROWS) ** 2),
    "and a penalty": lambda p: tf.reduce_mean(tf.square(p - ROWS)) + 0.1 * tf.reduce_sum(p),
}
RIGHT: dict[str, Loss] = {
    "average_loss": lambda p: tfdistr.average_loss(losses.mean_squared_error(ROWS, p)),
    "compute_average_loss": lambda p: tf.nn.compute_average_loss(losses.mean_squared_error(ROWS, p)),
    "a sum": lambda p: tf.reduce_sum(losses.mean_squared_error(ROWS, p)),
    "by the global batch": lambda p: tf.reduce_sum(losses.mean_squared_error(ROWS, p)) / 8.0,
    "mean / workers": lambda p: tf.reduce_mean(losses.mean_squared_error(ROWS, p)) / 2.0,
    "losses / workers": lambda p: tf.reduce_mean(losses.mean_squared_error(ROWS, p) / 2.0),
    "weights": lambda p: tf.reduce_mean(losses.mean_squared_error(ROWS, p) * tf.fill([4], 0.5)),
    "a scaled logarithm": lambda p: -tf.reduce_mean(tf.math.log(tf.nn.softmax(p)) * 0.5),
}


def said(loss: Loss, change: Callable[[Any], Any] = lambda gradients: gradients, **of_tape: Any) -> list[str]:
    """What is said of a step with a loss, as on two workers."""
    strategy = tf.distribute.MirroredStrategy(["cpu:0"])
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)

    def step() -> None:
        with tf.GradientTape() as tape:
            value = loss(model(ROWS))
        gradients = tape.gradient(value, model.trainable_variables, **of_tape)
        optimizer.apply(change(gradients), model.trainable_variables)

    mean_loss._Warned.already = False
    with warnings.catch_warnings(record=True) as caught, warn_of_means(2, "workers"):
        tf.function(lambda: strategy.run(step))()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("loss", MEANS)
def test_a_mean_is_reported(loss):
    assert said(MEANS[loss]) == [SAID]


@pytest.mark.parametrize("loss", RIGHT)
def test_a_loss_that_may_be_right_is_not(loss):
    assert said(RIGHT[loss]) == []


def test_neither_are_gradients_that_the_step_changes():
    mean = MEANS["by hand"]
    assert said(mean, lambda gradients: [g / 2 for g in gradients]) == []
    assert said(mean, lambda gradients: tf.clip_by_global_norm(gradients, 1.0)[0]) == []
    assert said(mean, output_gradients=tf.constant(0.5)) == []


def test_one_replica_has_nothing_to_report():
    mean_loss._Warned.already = False
    with warn_of_means(1, "workers"):
        assert tf.GradientTape.gradient.__module__.startswith("tensorflow.")

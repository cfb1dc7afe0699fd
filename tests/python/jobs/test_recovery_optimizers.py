"""Models with several optimizers, of which all continue from a checkpoint."""

import pickle
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from resumed import X, Y, bits, train

import tfdistr
from tfdistr.checkpoint.variables import build_optimizers, trained_by
from tfdistr.errors import ArgumentError
from tfdistr.tf_internals import optimizers_of


class Adversaries(keras.Model):
    """A generator and a discriminator, each with an optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
        self.discriminator = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.3),
             keras.layers.Dense(1)]
        )  # fmt: skip
        self.optimizers = {"generator": keras.optimizers.Adam(0.01)}
        self.seeds = keras.random.SeedGenerator(7)
        self.seen = keras.metrics.Mean("d_loss")

    def compile(self, **given: Any) -> None:
        super().compile(**given)
        self.d_optimizer = keras.optimizers.Adam(0.02)

    def train_step(self, data: Any) -> dict[str, Any]:
        real, _ = data
        noise = keras.random.normal((tf.shape(real)[0], 3), seed=self.seeds)
        with tf.GradientTape(persistent=True) as tape:
            made = self.discriminator(self.generator(noise), training=True)
            d_loss = keras.ops.mean(keras.ops.softplus(made) + keras.ops.softplus(-self.discriminator(real)))
            g_loss = keras.ops.mean(keras.ops.softplus(-made))
        for net, loss, optimizer in (
            (self.discriminator, d_loss, self.d_optimizer),
            (self.generator, g_loss, self.optimizers["generator"]),
        ):
            optimizer.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
        self.seen.update_state(d_loss)
        return {"d_loss": self.seen.result()}


class CanBeCalled(Adversaries):
    def call(self, inputs: Any) -> Any:
        return self.discriminator(inputs)


def can_be_called() -> keras.Model:
    made = CanBeCalled()
    made.compile(loss="mse")
    return made


def all_bits(fit: tfdistr.FitResult) -> list[bytes]:
    others = [np.asarray(v) for optimizer in optimizers_of(fit.model) for v in optimizer.variables]
    return [*bits(fit), *(value.tobytes() for value in others)]


def test_a_result_has_the_state_of_all_optimizers(tmp_path):
    fit = train(tmp_path, can_be_called, epochs=1)
    again = pickle.loads(pickle.dumps(fit))
    _, *used = (optimizer.variables for optimizer in optimizers_of(again.model))
    assert [len(variables) for variables in used] == [10, 6]  # of 4 and 2 weights, twice, and 2 more
    assert all(int(variables[0]) == 12 for variables in used)  # steps
    assert all_bits(again) == all_bits(fit)
    on = tfdistr.distributed_fit(again, X, Y, batch_size=8, epochs=2, initial_epoch=1, seed=1, verbose=0)
    assert all(int(o.iterations) == 24 for o in optimizers_of(on.model)[1:])


def held(optimizer: keras.optimizers.Optimizer, variables: list[keras.Variable]) -> keras.Model:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd")
    made.layers[0].others = [optimizer]
    optimizer.build(variables or made.trainable_variables)
    return made


def test_optimizers_are_found_in_layers_and_within_those_that_scale_the_loss():
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())
    made = held(scaled, [])
    assert optimizers_of(made) == [made.optimizer, scaled]
    assert trained_by(made) == [None, [0, 1]]
    again = held(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), [])
    build_optimizers(again, [[1], [0, 1]])
    assert trained_by(again) == [[1], [0, 1]]
    build_optimizers(again, [[0], [0]])  # they are built
    assert trained_by(again) == [[1], [0, 1]]


def test_an_optimizer_of_a_variable_that_no_checkpoint_has_is_refused():
    made = held(keras.optimizers.Adam(), [keras.Variable([1.0], name="lost")])
    with pytest.raises(ArgumentError, match="Cannot save the state of an optimizer that") as caught:
        trained_by(made)
    assert caught.value.received == "lost, not in Sequential.variables"

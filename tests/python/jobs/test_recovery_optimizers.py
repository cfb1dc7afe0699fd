"""Models with several optimizers, of which all continue from a checkpoint."""

import pickle

import keras
import pytest
from resumed import X, Y, bits, train, two_optimizers

import tfdistr
from tfdistr.checkpoint.variables import build_optimizers, trained_by
from tfdistr.errors import ArgumentError
from tfdistr.tf_internals import optimizers_of


def test_a_result_has_the_state_of_all_optimizers(tmp_path):
    fit = train(tmp_path, two_optimizers, epochs=1)
    again = pickle.loads(pickle.dumps(fit))
    optimizers = optimizers_of(again.model)
    assert [len(optimizer.variables) for optimizer in optimizers] == [2, 6]  # Adam has two for each weight
    assert [int(optimizer.iterations) for optimizer in optimizers] == [12, 12]
    assert bits(again) == bits(fit)
    on = tfdistr.distributed_fit(again, X, Y, batch_size=8, epochs=2, initial_epoch=1, seed=1, verbose=0)
    assert [int(optimizer.iterations) for optimizer in optimizers_of(on.model)] == [24, 24]


def held(optimizer: keras.optimizers.Optimizer, variables: list[keras.Variable]) -> keras.Model:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd")
    made.layers[0].others = {"all": [optimizer]}
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

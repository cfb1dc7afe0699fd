"""What two models compute, compared for a few rows."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import tfdistr
from tfdistr.training.model_copies.output_check import same_outputs

X = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")


class Function(keras.Model):
    """A model of a function of its inputs and a weight."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = self.add_weight(shape=(), initializer="ones", name="weight")

    def call(self, x):
        return self.function(self, x)


def drawn(model, x):
    return x * keras.random.normal((3,)) * np.random.random() * model.weight


@pytest.mark.parametrize(
    ("there", "here", "words"),
    [
        (lambda m, x: x, lambda m, x: (x, x), "2 outputs and gradients of the model, 3 of its copy"),
        (lambda m, x: x, lambda m, x: x[:, :2], r"output 0: float32 \(4, 3\) of the model, float32 \(4, 2\)"),
        (lambda m, x: ops.argmax(x), lambda m, x: ops.argmin(x), "output 0: other values"),
        (
            lambda m, x: x * m.weight,
            lambda m, x: x * ops.stop_gradient(m.weight),
            "gradient of .*weight: .* none",
        ),
        (
            lambda m, x: x + m.weight,
            lambda m, x: x + m.weight**2,
            "gradient of .*weight: a difference of up to",
        ),
        (lambda m, x: x, lambda m, x: x + 0.01, "output 0: a difference of up to 0.01"),
    ],
)
def test_other_outputs_and_gradients_are_named(there, here, words):
    with pytest.raises(tfdistr.ArgumentError, match=f"(?s)computes something else.*Received: .*(?:{words})"):
        same_outputs(Function(there), Function(here), X)


@pytest.mark.parametrize(
    "function", [drawn, lambda m, x: x * np.float32("nan"), lambda m, x: ops.cast(x, "bfloat16")]
)
def test_equal_functions_are_the_same(function):
    assert same_outputs(Function(function), Function(function), X)


def test_rounding_is_no_difference():
    assert same_outputs(Function(lambda m, x: x * 3.0), Function(lambda m, x: x + x + x), X)


def test_a_model_that_needs_more_than_inputs_is_not_compared():
    assert not same_outputs(Function(lambda m, x: x / None), Function(lambda m, x: x), X)


def test_random_layers_have_the_same_numbers():
    class Noisy(layers.Layer):
        def __init__(self):
            super().__init__()
            self.generator = keras.random.SeedGenerator()

        def call(self, x):
            return x + keras.random.normal((3,), seed=self.generator)

    noisy = [keras.Sequential([keras.Input((3,)), Noisy()]) for _ in range(2)]
    assert same_outputs(*noisy, X)

"""A compiled model instead of a function: what goes to the workers, what comes back, and what cannot go."""

import threading

import keras
import numpy as np
import pytest
from copied_models import copy_elsewhere, state
from slow import mostly_slow

import tfdistr
from tfdistr.training.model_copies.given_model import GivenModel, as_model_factory

pytestmark = pytest.mark.timeout(240)

layers, losses = keras.layers, keras.losses
rng = np.random.default_rng(0)
X = rng.normal(size=(96, 5)).astype("float32")
Y = (X[:, :1] > 0).astype("float32")
JOB = {"batch_size": 16, "epochs": 2, "seed": 1, "verbose": 0}


class Doubled(layers.Layer):
    """A class that is not registered."""

    def __init__(self, factor: float = 2.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, inputs):
        return inputs * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


@keras.saving.register_keras_serializable("tests")
class Tripled(Doubled):
    """A class that is registered."""


def squashed(x):
    return x / (1 + keras.ops.abs(x))


def squared(y_true, y_pred):
    return keras.ops.square(y_true - y_pred)


def compiled(model: keras.Model, loss="mse", **arguments) -> keras.Model:
    model.compile(keras.optimizers.Adam(0.01), loss, **{"metrics": ["mae"], **arguments})
    return model


def functional() -> keras.Model:
    inputs = keras.Input((5,))
    hidden = layers.Dense(4, "relu")(inputs)
    outputs = layers.Dense(1)(layers.Concatenate()([Tripled()(hidden), Doubled(3.0)(hidden)]))
    return compiled(keras.Model(inputs, outputs), squared)


def unbuilt() -> keras.Model:
    return compiled(keras.Sequential([layers.Dense(4, "relu"), layers.Dropout(0.0), layers.Dense(1)]))


# Slow: trains each model twice.
@pytest.mark.parametrize(
    ("make", "workers"), mostly_slow([(functional, None), (unbuilt, 2)], quick=[(functional, None)])
)
def test_the_callers_model_has_the_result_of_a_function_that_makes_the_same_model(make, workers):
    keras.utils.set_random_seed(3)
    model = make()
    # In another process, or alone, the same weights come from the function.
    expected = tfdistr.distributed_fit(as_model_factory(model), X, Y, **JOB)
    fit = tfdistr.distributed_fit(
        model, X, Y, cluster=workers and tfdistr.local_cluster(workers), **JOB
    )  # fmt: skip
    assert fit.model is model
    assert int(model.optimizer.iterations.numpy()) == 12
    for received, wanted in zip(state(model), state(expected.model), strict=True):
        np.testing.assert_allclose(received, wanted, atol=1e-6)
    np.testing.assert_allclose(fit.history["loss"], expected.history["loss"], atol=1e-6)
    assert model.evaluate(X, Y, verbose=0, return_dict=True).keys() == {"loss", "mae"}


def test_the_next_call_begins_with_the_weights_and_the_optimizer_state_of_the_last():
    model = functional()
    tfdistr.distributed_fit(model, X, Y, **JOB)
    copy = copy_elsewhere(model)
    for received, wanted in zip(state(copy), state(model), strict=True):
        np.testing.assert_array_equal(received, wanted)
    assert copy.get_compile_config() == model.get_compile_config()
    before = model.evaluate(X, Y, verbose=0)[0]
    fit = tfdistr.distributed_fit(model, X, Y, **JOB)
    assert fit.history["loss"][0] < before * 1.05
    assert int(model.optimizer.iterations.numpy()) == 24


def test_a_model_of_16_bits_whose_optimizer_scales_the_loss_can_be_trained_twice():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    finally:
        keras.config.set_dtype_policy("float32")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    x = np.ones((8, 4), "float32")
    steps = 0  # a step whose gradients are not finite does not count
    for _ in range(2):
        tfdistr.distributed_fit(model, x, x[:, :1], batch_size=4, epochs=4, seed=1, verbose=0)
        assert int(model.optimizer.iterations) > steps
        steps = int(model.optimizer.iterations)


def test_a_huber_loss_keeps_its_delta_which_keras_does_not_save():
    model = compiled(functional(), losses.Huber(delta=0.1))
    assert GivenModel(model)().evaluate(X, Y, verbose=0) == model.evaluate(X, Y, verbose=0)


def test_the_result_of_a_model_that_the_training_has_built_is_evaluated():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    fit = tfdistr.distributed_fit(model, X, Y, seed=1, verbose=0)
    assert fit.evaluate(X, Y)["loss"] == pytest.approx(model.evaluate(X, Y, verbose=0))


def test_a_result_goes_on_with_a_copy_of_its_model():
    first = tfdistr.distributed_fit(functional, X, Y, **JOB)
    before = state(first.model)
    second = tfdistr.distributed_fit(first, X, Y, **JOB)
    assert second.history["loss"][-1] < first.history["loss"][-1]
    assert int(second.model.optimizer.iterations.numpy()) == 24
    for received, wanted in zip(state(first.model), before, strict=True):
        np.testing.assert_array_equal(received, wanted)


def test_a_job_that_fails_leaves_it_as_it_was():
    model = functional()
    before = state(model)

    def on_epoch_end(epoch, logs):
        raise ValueError("on purpose")

    callback = keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)
    with pytest.raises(ValueError, match="on purpose"):
        tfdistr.distributed_fit(model, X, Y, callbacks=[callback], **JOB)
    for received, wanted in zip(state(model), before, strict=True):
        np.testing.assert_array_equal(received, wanted)


def with_nested_parts() -> keras.Model:
    factor = 2.0

    class Nested(Doubled):
        pass

    def nested(y_true, y_pred):
        return factor * squared(y_true, y_pred)

    return compiled(keras.Sequential([keras.Input((5,)), Nested(), layers.Dense(1, squashed)]), nested)


def test_functions_and_classes_of_the_user_go_along():
    model = with_nested_parts()
    expected = tfdistr.distributed_fit(with_nested_parts, X, Y, **JOB)
    copy = copy_elsewhere(model)
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy.predict(X, verbose=0), model.predict(X, verbose=0))
    assert copy.evaluate(X, Y, verbose=0) == model.evaluate(X, Y, verbose=0)
    fit = tfdistr.distributed_fit(model, X, Y, cluster=tfdistr.local_cluster(1), **JOB)
    assert fit.history.keys() == expected.history.keys()


class WithoutConfig(layers.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, inputs):
        return self.function(inputs)


def with_a_lock() -> keras.Model:
    lock = threading.Lock()

    def locked(y_true, y_pred):
        with lock:
            return squared(y_true, y_pred)

    return compiled(keras.Sequential([layers.Dense(1)]), locked)


REFUSED = {
    "not compiled": (lambda: keras.Sequential([layers.Dense(1)]), "`model` must be compiled"),
    "a lambda": (
        lambda: compiled(keras.Sequential([layers.Lambda(lambda x: x), layers.Dense(1)])),
        "Received: a lambda",
    ),
    "what cannot be pickled": (
        with_a_lock, "Received: the function 'locked' of .*, which cannot be pickled: .*lock"
    ),
    "a class without get_config": (
        lambda: compiled(keras.Sequential([WithoutConfig(squared), layers.Dense(1)])),
        "Received: a part that Keras cannot describe: .*WithoutConfig",
    ),
    "a number": (lambda: 3, r"must be a compiled Keras 3 model, or a function.*Received: a number \(3\)"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_sent_is_named(what):
    make, words = REFUSED[what]
    with pytest.raises(tfdistr.ArgumentError, match=f"(?s){words}"):
        tfdistr.distributed_fit(make(), X, Y, cluster=tfdistr.local_cluster(2), **JOB)

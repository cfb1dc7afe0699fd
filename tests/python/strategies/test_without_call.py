"""Models without ``call()``, whose steps call their networks, such as diffusion models."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from resumed import At, breaks
from slow import mostly_slow

import tfdistr
from tfdistr.errors import ArgumentError
from tfdistr.strategies.build import build_by_step
from tfdistr.training.model_state import ModelState

pytestmark = pytest.mark.timeout(240)

rng = np.random.default_rng(0)
IMAGES, NOISES = rng.normal(size=(2, 64, 4)).astype("float32")
JOB = {"batch_size": 16, "epochs": 2, "seed": 1, "shuffle": False, "verbose": 0}
VALIDATION = {"validation_data": (IMAGES[:32], NOISES[:32])}


def network(*, built: bool = True) -> keras.Model:
    first, second = (keras.initializers.GlorotUniform(seed) for seed in (3, 4))
    parts = [keras.layers.Dense(8, "relu", kernel_initializer=first),
             keras.layers.Dense(4, kernel_initializer=second)]  # fmt: skip
    return keras.Sequential([*([keras.Input((4,))] if built else []), *parts])


class Denoiser(keras.Model):
    """Removes noise, which comes as data."""

    def __init__(self, *, built: bool = True) -> None:
        super().__init__()
        self.network = network(built=built)
        self.noise_loss = keras.metrics.Mean(name="n_loss")

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.noise_loss]

    def errors(self, data: Any, training: bool) -> Any:
        images, noises = data
        return self.loss(noises, self.network(0.8 * images + 0.6 * noises, training=training))

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            errors = self.errors(data, training=True)
            loss = keras.ops.mean(errors)
        weights = self.network.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.noise_loss.update_state(errors)
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, data: Any) -> dict[str, Any]:
        self.noise_loss.update_state(self.errors(data, training=False))
        return {metric.name: metric.result() for metric in self.metrics}


class Averages(Denoiser):
    """Has a second network with the averages of the weights, which no optimizer trains."""

    def __init__(self) -> None:
        super().__init__()
        self.averages = network()

    def train_step(self, data: Any) -> dict[str, Any]:
        logs = super().train_step(data)
        for average, weight in zip(self.averages.weights, self.network.weights, strict=True):
            average.assign(0.9 * average + 0.1 * weight)
        return logs


class Compiled(Denoiser):
    @tf.function
    def train_step(self, data: Any) -> dict[str, Any]:
        return super().train_step(data)


class OfXAlone(Denoiser):
    """Takes ``x`` alone; its noise is a function of it."""

    def errors(self, data: Any, training: bool) -> Any:
        return super().errors((data, keras.ops.roll(data, 1, axis=1)), training)


def compiled(made: keras.Model) -> keras.Model:
    made.compile(optimizer=keras.optimizers.Adam(0.01), loss=keras.losses.mean_absolute_error)
    return made


MODELS: dict[str, Callable[[], keras.Model]] = {
    "network": lambda: compiled(Denoiser()),
    "averages": lambda: compiled(Averages()),
    "compiled step": lambda: compiled(Compiled()),
    "layers without weights": lambda: compiled(Denoiser(built=False)),
}


def of_keras(made: keras.Model) -> tuple[keras.Model, dict[str, Any]]:
    history = made.fit(IMAGES, NOISES, batch_size=16, epochs=2, shuffle=False, verbose=0, **VALIDATION)
    return made, history.history


def assert_same(received: keras.Model, history: dict[str, Any], expected: Any) -> None:
    made, of_made = expected
    assert history.keys() == of_made.keys() == {"n_loss", "val_n_loss"}
    for name, values in of_made.items():
        assert history[name] == pytest.approx(values, abs=1e-6)
    for mine, theirs in zip(received.get_weights(), made.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_it_trains_in_this_process_as_by_keras(name):
    made = MODELS[name]
    fit = tfdistr.distributed_fit(made, IMAGES, NOISES, **JOB, **VALIDATION)
    expected = of_keras(made())
    assert_same(fit.model, fit.history, expected)
    assert len(fit.model.optimizer.variables) == len(expected[0].optimizer.variables)


# Slow: trains on two workers.
@pytest.mark.parametrize("name", mostly_slow(["averages", "layers without weights"], quick=["averages"]))
def test_it_trains_on_workers_as_by_keras(name):
    made, cluster = MODELS[name], tfdistr.local_cluster(workers=2)
    fit = tfdistr.distributed_fit(made, IMAGES, NOISES, cluster=cluster, **JOB, **VALIDATION)
    expected = of_keras(made())
    if name == "layers without weights":
        assert fit.history["n_loss"] == pytest.approx(expected[1]["n_loss"], abs=1e-6)
        with pytest.raises(ArgumentError, match="Cannot build the trained model here: some of") as caught:
            _ = fit.model
        assert caught.value.received == "Denoiser with 0 of 4 weights"
        return
    assert_same(fit.model, fit.history, expected)
    # The optimizer trains the network, not the averages.
    assert len(fit.model.optimizer.variables) == len(expected[0].optimizer.variables)
    evaluated = expected[0].evaluate(IMAGES, NOISES, batch_size=16, verbose=0, return_dict=True)
    for where in (None, cluster):
        received = fit.evaluate(IMAGES, NOISES, batch_size=16, cluster=where)
        assert received == pytest.approx(evaluated, abs=1e-6)


@pytest.mark.parametrize("name", ["network", "layers without weights"])
def test_keras_fits_it_under_the_strategy(name):
    strategy = tfdistr.MultiWorkerMirroredStrategy()
    with strategy.scope():
        made = MODELS[name]()
    expected = of_keras(MODELS[name]())
    assert_same(*of_keras(made), expected)
    with strategy.scope():
        untrained = MODELS[name]()
    for one, other in ((made, expected[0]), (untrained, MODELS[name]())):
        evaluated = other.evaluate(IMAGES, NOISES, verbose=0)
        assert one.evaluate(IMAGES, NOISES, verbose=0) == pytest.approx(evaluated, abs=1e-6)


def test_a_run_is_resumed(tmp_path):
    made, given = MODELS["averages"], JOB | VALIDATION | {"checkpoint_every": 3}
    full = tfdistr.distributed_fit(made, IMAGES, NOISES, run_dir=tmp_path / "full", **given)
    given["run_dir"] = tmp_path / "run"
    with pytest.raises(RuntimeError, match="the disk is full"):
        tfdistr.distributed_fit(made, IMAGES, NOISES, callbacks=[At(1, breaks)], **given)
    fit = tfdistr.distributed_fit(made, IMAGES, NOISES, resume=True, **given)
    assert fit.history == full.history
    for mine, theirs in zip(fit.model.get_weights(), full.model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_state_builds_a_model_of_x_alone():
    def made() -> keras.Model:
        return compiled(OfXAlone(built=False))

    fit = tfdistr.distributed_fit(made, IMAGES, **JOB)
    state = fit._trained.state()
    assert isinstance(state, ModelState)
    again = state.give(made())
    for mine, theirs in zip(again.get_weights(), fit.model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert fit.evaluate(IMAGES) == pytest.approx({"n_loss": again.evaluate(IMAGES, verbose=0)})


def test_all_optimizers_are_built_for_what_they_train():
    class Two(Denoiser):
        def __init__(self) -> None:
            super().__init__(built=False)
            self.second = network()
            self.optimizers = {"second": keras.optimizers.Adam()}

        def train_step(self, data: Any) -> dict[str, Any]:
            logs = super().train_step(data)
            weights = self.second.trainable_weights[:1]
            self.optimizers["second"].apply([tf.zeros_like(weights[0])], weights)
            return logs

    made = compiled(Two())
    before = made.second.get_weights()
    build_by_step(made, (tf.zeros([2, 4]), tf.zeros([2, 4])))
    assert made.built
    assert len(made.network.weights) == 4
    assert len(made.optimizer.variables) == 2 + 2 * 4
    assert len(made.optimizers["second"].variables) == 2 + 2 * 1
    assert int(made.optimizer.iterations) == 0
    assert float(made.noise_loss.result()) == 0
    for mine, theirs in zip(made.second.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_an_error_of_the_step_is_the_users():
    class Fails(Denoiser):
        def train_step(self, data: Any) -> dict[str, Any]:
            raise ZeroDivisionError("the step fails")

    with pytest.raises(ZeroDivisionError, match="the step fails"):
        build_by_step(compiled(Fails(built=False)), (tf.zeros([2, 4]), tf.zeros([2, 4])))


def test_a_model_without_call_and_step_gets_the_error_of_keras():
    class Neither(keras.Model):
        pass

    with pytest.raises(NotImplementedError, match="does not have a `call\\(\\)` method"):
        tfdistr.distributed_fit(lambda: compiled(Neither()), IMAGES, NOISES, strategy="one_device", **JOB)

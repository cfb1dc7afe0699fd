"""Models whose class overrides compile(): its arguments reach the workers, or an error names them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from copied_models import copy_elsewhere
from resumed import At, breaks

import tfdistr
from tfdistr.tf_internals import optimizers_of
from tfdistr.training.model_copies.given_model import GivenModel, as_model_factory

pytestmark = pytest.mark.timeout(240)

layers, losses = keras.layers, keras.losses
rng = np.random.default_rng(0)
X = rng.normal(size=(96, 5)).astype("float32")
Y = (X[:, :1] > 0).astype("float32")
JOB = {"batch_size": 16, "epochs": 2, "seed": 1, "verbose": 0}


class Sampler:
    """An object with a configuration that is of neither a layer nor an optimizer."""

    def __init__(self, k: int = 5) -> None:
        self.k = k

    def get_config(self) -> dict[str, Any]:
        return {"k": self.k}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Sampler:
        return cls(**config)


class Task(keras.Model):
    """A functional model, as the tasks of keras-hub are: it has a configuration of its own."""

    def __init__(self, units: int = 4, **kwargs: Any) -> None:
        inputs = keras.Input((5,))
        super().__init__(inputs, layers.Dense(1)(layers.Dense(units, "relu")(inputs)), **kwargs)
        self.units = units
        self.compile()

    def get_config(self) -> dict[str, Any]:
        return {"units": self.units, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Task:
        return cls(**config)

    def compile(self, optimizer="auto", loss="auto", *, metrics="auto", sampler="top", **kwargs):
        optimizer = keras.optimizers.Adam(5e-5) if optimizer == "auto" else optimizer
        loss = losses.MeanSquaredError() if loss == "auto" else loss
        metrics = ["mae"] if metrics == "auto" else metrics
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)
        self.sampler = Sampler() if sampler == "top" else sampler


class Detector(Task):
    """A task that passes its arguments to Keras under other names."""

    def compile(self, optimizer="auto", box_loss="auto", **kwargs):
        losses_by_output = [losses.Huber() if box_loss == "auto" else box_loss]
        optimizer = "sgd" if optimizer == "auto" else optimizer
        keras.Model.compile(self, optimizer=optimizer, loss=losses_by_output, **kwargs)


class OwnLoop(Task):
    """Keras's compile() gets nothing, and the optimizer comes after it: as custom loops were once written."""

    def compile(self, optimizer="sgd", loss_fn=None):
        keras.Model.compile(self)
        self.optimizer = keras.optimizers.get(optimizer)
        self._loss_fn = loss_fn

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(self._loss_fn(y, self(x, training=True)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class Adversaries(keras.Model):
    """Two models and two optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.Sequential([keras.Input((3,)), layers.Dense(5)])
        self.discriminator = keras.Sequential([keras.Input((5,)), layers.Dense(8, "relu"), layers.Dense(1)])
        self.seeds = keras.random.SeedGenerator(7)

    def get_config(self) -> dict[str, Any]:
        return {}

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn

    def call(self, inputs):
        return self.discriminator(inputs)

    def train_step(self, data):
        real, _ = data
        noise = keras.random.normal((tf.shape(real)[0], 3), seed=self.seeds)
        with tf.GradientTape(persistent=True) as tape:
            made = self.discriminator(self.generator(noise))
            ones, zeros = tf.ones_like(made), tf.zeros_like(made)
            d_loss = self.loss_fn(zeros, made) + self.loss_fn(ones, self.discriminator(real))
            g_loss = self.loss_fn(ones, made)
        for net, loss, optimizer in (
            (self.discriminator, d_loss, self.d_optimizer), (self.generator, g_loss, self.g_optimizer),
        ):  # fmt: skip
            optimizer.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
        return {"d_loss": d_loss, "g_loss": g_loss}


class Smoothed(losses.Loss):
    """A loss that is not registered."""

    def __init__(self, factor: float = 1.0, name: str = "smoothed") -> None:
        super().__init__(name=name)
        self.factor = factor

    def call(self, y_true, y_pred):
        return self.factor * keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {"factor": self.factor, "name": self.name}


def task(**arguments: Any) -> Task:
    made = Task()
    made.compile(keras.optimizers.Adam(0.01), **arguments)
    return made


def own_loop(**arguments: Any) -> OwnLoop:
    made = OwnLoop()
    made.compile(**{"optimizer": keras.optimizers.SGD(0.03), "loss_fn": Smoothed(2.0)} | arguments)
    return made


def adversaries() -> Adversaries:
    made = Adversaries()
    adam = keras.optimizers.Adam
    made.compile(adam(0.01), adam(0.02, beta_1=0.5), losses.BinaryCrossentropy(from_logits=True))
    return made


def state(model: keras.Model) -> list[np.ndarray]:
    return [*model.get_weights(), *(np.asarray(v) for o in optimizers_of(model) for v in o.variables)]


def assert_same(received: keras.Model, wanted: keras.Model, atol: float = 0.0) -> None:
    for one, other in zip(state(received), state(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


def test_a_copy_has_the_arguments_of_the_class_and_those_of_keras():
    copy = copy_elsewhere(task(loss=Smoothed(3.0), sampler=Sampler(7), run_eagerly=True))
    assert isinstance(copy, Task)
    assert (copy.sampler.k, copy.loss.factor, copy.run_eagerly) == (7, 3.0, True)
    assert float(copy.optimizer.learning_rate) == pytest.approx(0.01)
    assert copy.get_compile_config()["metrics"] == ["mae"]


def test_defaults_that_compile_resolves_stay_what_they_were():
    copy = copy_elsewhere(Task())
    assert float(copy.optimizer.learning_rate) == pytest.approx(5e-5)
    assert (type(copy.loss), copy.sampler.k) == (losses.MeanSquaredError, 5)


def test_keras_gets_what_it_got_whatever_the_names_of_the_arguments_are():
    model = Detector()
    model.compile(box_loss=Smoothed(4.0), metrics=["mse"])
    copy = copy_elsewhere(model)
    assert [loss.factor for loss in copy.loss] == [4.0]
    assert type(copy.optimizer) is keras.optimizers.SGD
    assert copy.get_compile_config() == model.get_compile_config()


@pytest.mark.parametrize("scaled", [False, True])
def test_an_optimizer_that_follows_compile_of_keras_is_an_argument_too(scaled):
    optimizer = keras.optimizers.SGD(0.03)
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer
    copy = copy_elsewhere(own_loop(optimizer=optimizer))
    assert type(copy.optimizer) is type(optimizer)
    assert float(copy.optimizer.learning_rate) == pytest.approx(0.03)
    assert copy._loss_fn.factor == 2.0


def test_an_object_that_two_arguments_share_is_one_object_in_a_copy():
    class Shares(Task):
        def compile(self, optimizer="sgd", teacher_optimizer=None):
            keras.Model.compile(self, optimizer, "mse")
            self.teacher_optimizer = teacher_optimizer

    model, adam = Shares(), keras.optimizers.Adam()
    model.compile(adam, adam)
    copy = copy_elsewhere(model)
    assert copy.teacher_optimizer is copy.optimizer


def test_an_optimizer_that_scales_the_loss_is_not_scaled_twice():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        copy = copy_elsewhere(task())
    finally:
        keras.config.set_dtype_policy("float32")
    assert type(copy.optimizer) is keras.optimizers.LossScaleOptimizer
    assert type(copy.optimizer.inner_optimizer) is keras.optimizers.Adam


def test_a_class_with_a_get_compile_config_is_compiled_with_it():
    class Scaled(Task):
        def compile(self, scale=1.0):
            keras.Model.compile(self, "sgd", "mse")
            self._factor = scale

        def get_compile_config(self):
            return {"scale": self._factor}

    model = Scaled()
    model.compile(2.5)
    assert copy_elsewhere(model)._factor == 2.5


def test_keras_saves_models_as_before(tmp_path):
    saved = keras.Model.get_compile_config, keras.Model.compile_from_config, keras.Model.compile
    model = task()
    copy_elsewhere(model)
    assert (keras.Model.get_compile_config, keras.Model.compile_from_config, keras.Model.compile) == saved
    assert "own" not in model.get_compile_config()


def test_the_callers_model_has_the_result_of_a_function_that_makes_the_same_model():
    keras.utils.set_random_seed(3)
    model = task()
    expected = tfdistr.distributed_fit(as_model_factory(model), X, Y, **JOB)
    mpi = tfdistr.multi_worker_mirrored(communication="mpi")
    fit = tfdistr.distributed_fit(model, X, Y, cluster=tfdistr.local_cluster(2), strategy=mpi, **JOB)
    assert fit.model is model
    assert int(model.optimizer.iterations.numpy()) == 12
    assert_same(model, expected.model, atol=1e-6)
    assert fit.history.keys() == expected.history.keys()
    second = tfdistr.distributed_fit(fit, X, Y, **JOB)
    assert int(second.model.optimizer.iterations.numpy()) == 24


def test_all_optimizers_of_the_callers_model_have_their_state():
    keras.utils.set_random_seed(3)
    model = adversaries()
    expected = tfdistr.distributed_fit(as_model_factory(model), X, Y, **JOB)
    tfdistr.distributed_fit(model, X, Y, **JOB)
    assert [int(o.iterations.numpy()) for o in optimizers_of(model)] == [0, 12, 12]
    assert_same(model, expected.model)
    assert_same(copy_elsewhere(model), model)
    tfdistr.distributed_fit(model, X, Y, **JOB)
    assert [int(o.iterations.numpy()) for o in optimizers_of(model)] == [0, 24, 24]


@pytest.mark.parametrize("make", [task, adversaries])
def test_a_run_resumes_with_the_same_bits(tmp_path, make):
    keras.utils.set_random_seed(3)
    model = make()
    given = JOB | {"checkpoint_every": "epoch"}
    full = tfdistr.distributed_fit(as_model_factory(model), X, Y, run_dir=tmp_path / "full", **given)
    with pytest.raises(RuntimeError, match="the disk is full"):
        tfdistr.distributed_fit(model, X, Y, run_dir=tmp_path / "run", callbacks=[At(1, breaks)], **given)
    tfdistr.distributed_fit(model, X, Y, run_dir=tmp_path / "run", resume=True, **given)
    assert_same(model, full.model)


class Unregistered:
    """No configuration."""


class Renamed(Task):
    """Keeps its argument under another name."""

    def compile(self, scale=1.0):
        keras.Model.compile(self, "sgd", "mse")
        self.factor = scale


class Weighs(keras.Sequential):
    def compile(self, weighted_metrics):
        super().compile("sgd", "mse", weighted_metrics=weighted_metrics)


class Forgets(keras.Sequential):
    def compile(self, secret):
        super().compile("sgd", "mse")


class Pops(Forgets):
    def compile(self, **kwargs):
        self.scale = kwargs.pop("scale")
        keras.Sequential.compile(self, "sgd", "mse", **kwargs)


def compiled(kind: type[keras.Model], **arguments: Any) -> keras.Model:
    made = kind()
    made.compile(**arguments)
    return made


REFUSED = {
    "a lambda": (
        lambda: own_loop(loss_fn=lambda y, p: y - p), r"`loss_fn` of OwnLoop.compile\(\): a lambda"
    ),
    "an object": (
        lambda: task(sampler=Unregistered()),
        r"`sampler` of Task.compile\(\): Unregistered, which Keras cannot describe",
    ),
    "what the model does not keep": (
        lambda: compiled(Forgets, secret=1), r"`secret` of Forgets.compile\(\), which the model does not keep"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_sent_is_named(what):
    make, words = REFUSED[what]
    message = f"(?s)Cannot serialize `model`.*Received: {words}.*or pass a function"
    with pytest.raises(tfdistr.ArgumentError, match=message):
        tfdistr.distributed_fit(make(), X, Y, cluster=tfdistr.local_cluster(2), **JOB)


def test_a_copy_has_an_argument_that_is_kept_under_another_name():
    assert GivenModel(compiled(Renamed, scale=3.0))().factor == 3.0


def test_an_argument_that_only_keras_keeps_is_taken_from_it():
    copy = GivenModel(compiled(Weighs, weighted_metrics=["mae"]))()
    assert copy.get_compile_config()["weighted_metrics"] == ["mae"]


def test_a_compile_that_fails_in_a_copy_says_what_it_raised():
    model = compiled(Pops, scale=1.0)
    with pytest.raises(tfdistr.ArgumentError, match=r"Pops.compile\(\), which raised KeyError: 'scale'"):
        tfdistr.distributed_fit(model, X, Y, **JOB)

"""Callbacks that do, and that do not, the same on all workers, under the strategy, as one worker of two.

Usage: callbacks_apart.py OWN   (writes OWN/<index>.json: what each part gave on this worker)
"""

import gc
import json
import sys
import weakref
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy(start_timeout=60)

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402
from heard import Heard  # noqa: E402

OWN, INDEX = Path(sys.argv[1]), strategy.worker_index
layers = keras.layers
X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = X[:, :1] * 2
heard = Heard()


class Skipping(keras.Model):
    """A model whose step leaves out a loss that is not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(1)

    def call(self, inputs: Any, training: Any = None) -> Any:
        return self.dense(inputs)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.boolean_mask(tf.square(y - self(x, training=True)), y > 3.0))
            scaled = self.optimizer.scale_loss(loss)
        found = tape.gradient(scaled, self.trainable_variables)
        finite = [tf.where(tf.math.is_finite(each), each, tf.zeros_like(each)) for each in found]
        self.optimizer.apply(finite, self.trainable_variables)
        return {"loss": tf.where(tf.math.is_finite(loss), loss, 0.0)}


class Applies(keras.Model):
    """A model whose step applies an optimizer that it does not hold: one of the program, or a new one."""

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(data[0]) ** 2)
        optimizer = of_program[0] if of_program else keras.optimizers.SGD(0.1)
        optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


of_program: list[keras.optimizers.Optimizer] = []


class WithRows(keras.Sequential):
    """A model whose logs have a number for each row, and the graphs of its steps."""

    graphs: ClassVar[list[weakref.ref[Any]]] = []

    def train_step(self, data: Any) -> Any:
        self.graphs.append(weakref.ref(data[1].graph))
        return {**super().train_step(data), "rows": data[1][:, 0]}


class Normalizing(keras.Model):
    """A model around a layer that it calls with this argument ``training``, or with its own."""

    def __init__(self, layer: keras.Layer, training: bool | None = None) -> None:
        super().__init__()
        self.layer, self.dense, self.training = layer, layers.Dense(1), training

    def call(self, inputs: Any, training: Any = None) -> Any:
        return self.dense(self.layer(inputs, training=training if self.training is None else self.training))


def make() -> keras.Model:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(3, "relu", name="first"), layers.Dense(1)])
        model.compile("adam", "mse", metrics=["mae"])
    return model


def fit(model: keras.Model, *callbacks: Any, x: Any = X) -> list[str]:
    """The lines of the error of three epochs, or the warnings."""
    heard.take()
    data = tf.data.Dataset.from_tensor_slices((x, Y)).batch(8)
    try:
        model.fit(data, epochs=3, verbose=0, callbacks=list(callbacks))
    except tfdistr.TfdistrError as error:
        return f"{type(error).__name__}: {error}".splitlines()
    return heard.take()


def at(hook: str, call: Any, *, on: Any = (0, 1)) -> keras.callbacks.Callback:
    """A callback that calls ``call`` on some workers, in the hook of this name."""
    return keras.callbacks.LambdaCallback(**{hook: lambda *_, **__: call() if INDEX in on else None})


def calls() -> object:
    model = make()
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)

    def new_variable() -> None:
        with strategy.scope():
            keras.Variable(1.0)

    alone = {
        "on_epoch_end": lambda: model.predict(X, verbose=0),
        "on_epoch_begin": lambda: model.evaluate(data, verbose=0),
        "on_train_begin": lambda: model.fit(data, verbose=0),
        "on_train_batch_begin": lambda: float(model.metrics[0].result()),
        "on_train_batch_end": lambda: model.predict(X, verbose=0),
        "on_train_end": new_variable,
    }
    return {hook: fit(model, at(hook, call, on=(0,))) for hook, call in alone.items()}


def together() -> object:
    model, seen = make(), []
    fit(model, at("on_epoch_end", lambda: seen.append(model.predict(X, verbose=0).ravel()[:3].tolist())))
    return seen


def nested() -> object:
    """A fit within a callback, and then a call of the chief alone."""
    model, other = make(), make()
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    compared = []

    def inner() -> None:
        for _ in range(2):
            compared.append(id(strategy.extended.checks.agreement))
            other.fit(data, verbose=0)
        if INDEX == 0:
            model.predict(X, verbose=0)

    lines = fit(model, at("on_epoch_end", inner))
    return {"lines": lines, "compared": len(set(compared))}


def raised() -> object:
    """An error of a callback, and a fit after it."""
    model, extended = make(), strategy.extended
    try:
        fit(model, at("on_epoch_end", lambda: 1 / 0))
    except ZeroDivisionError:
        within, before = extended.checks.calls.within_hook, extended.checks.agreement
        fit(model)
        return [within, extended.checks.agreement is before]


def released() -> object:
    """Whether trained models, their optimizers and the graphs of their steps are kept."""

    def trained(kind: type[keras.Sequential]) -> list[bool]:
        with strategy.scope():
            model = kind([keras.Input((4,)), layers.Dense(1)])
            model.compile("adam", "mse")
        model.fit(tf.data.Dataset.from_tensor_slices((X, Y)).batch(8), verbose=0)
        refs = [weakref.ref(model), weakref.ref(model.optimizer)]
        del model
        gc.collect()
        return [each() is not None for each in refs]

    usual, with_rows = trained(keras.Sequential), trained(WithRows)
    assert WithRows.graphs
    return [*usual, *with_rows, any(graph() is not None for graph in WithRows.graphs)]


def changes() -> object:
    model = make()
    rate = model.optimizer
    kernel = model.get_layer("first").kernel
    by_chief = tfdistr.chief_only(at("on_epoch_end", lambda: setattr(rate, "learning_rate", 0.5)))
    of_all = at("on_epoch_end", lambda: kernel.assign(kernel * 0.5))
    bits = fit(model, at("on_epoch_end", lambda: kernel.assign(kernel * (1 + 1e-6)), on=(1,)))
    return {
        "rounding": bits,
        "weight": fit(make_again(model), at("on_epoch_end", lambda: kernel.assign(kernel * 2), on=(1,))),
        "rate": fit(make_again(model), by_chief),
        "all": fit(make_again(model), of_all),
    }


def make_again(model: keras.Model) -> keras.Model:
    """Give a model the same values on all workers again."""
    for variable in [*model.variables, *model.optimizer.variables]:
        variable.assign(keras.ops.zeros_like(variable) + 1)
    return model


def numbers() -> object:
    model, seen = make(), []

    def read() -> None:
        rate, steps = model.optimizer.learning_rate, model.optimizer.iterations
        total = model.metrics[0].variables[0]
        seen.append([float(rate), int(steps), f"{float(rate.value):.1e}", complex(steps).real, rate < 0.01])
        for value in (total, total.value):
            assert float(value) == np.asarray(value) == keras.ops.convert_to_numpy(value) == value.numpy()
        assert [5, 6, 7][int(steps.value) // 4 - 1] == 4 + int(steps) // 4

    said = fit(model, at("on_epoch_end", read))
    return [said, [[*row[:4], bool(row[4])] for row in seen]]


def normalized() -> object:
    names = ("inner", "off", "inner_off", "frozen")
    with strategy.scope():
        norms = {name: layers.BatchNormalization(name=name) for name in names}
        norms["frozen"].trainable = False
        models = {
            "inner": Normalizing(keras.Sequential([norms["inner"]])),
            "off": Normalizing(norms["off"], training=False),
            "inner_off": Normalizing(keras.Sequential([norms["inner_off"]]), training=False),
            "frozen": Normalizing(norms["frozen"]),
        }
        for model in models.values():
            model.compile("sgd", "mse")
    return {name: fit(model) for name, model in models.items()}


def normalized_again() -> object:
    """What is noted in each of two calls of fit, the second of which traces nothing."""

    def noted(*, run_eagerly: bool) -> list[list[str]]:
        with strategy.scope():
            model = Normalizing(layers.BatchNormalization(name="norm"))
            model.compile("sgd", "mse", run_eagerly=run_eagerly)
        found = [[fit(model), list(strategy.extended.differences)][1] for _ in range(2)]
        return [[line for line in lines if "normalizes" in line] for lines in found]

    return [noted(run_eagerly=False), noted(run_eagerly=True)]


def optimizers() -> object:
    """Steps with optimizers that nobody finds."""
    found = {}
    for kind in ("in the step", "of the program"):
        with strategy.scope():
            inputs = keras.Input((4,))
            model = Applies(inputs, layers.Dense(1)(inputs))
            model.compile()
            if kind == "of the program":
                of_program.append(keras.optimizers.SGD(0.1))
                of_program[0].build(model.trainable_weights)
        found[kind] = fit(model)
    return found


def not_numbers() -> object:
    missing = np.where(np.arange(32)[:, np.newaxis] == 13, np.nan, X).astype("float32")
    with strategy.scope():
        inputs = {"whole": keras.Input((4,)), "part": keras.Input((4,))}
        known = keras.ops.where(keras.ops.isnan(inputs["part"]), 0.0, inputs["part"])
        model = keras.Model(inputs, layers.Dense(1)(inputs["whole"] + known))
        model.compile("adam", "mse")
        skipping = Skipping()
        skipping.compile("sgd")
    return {"missing": fit(model, x={"whole": X, "part": missing}), "skipped": fit(skipping)}


found = {part.__name__: part() for part in (calls, together, nested, raised, released, changes, numbers)}
found |= {part.__name__: part() for part in (normalized, normalized_again, not_numbers, optimizers)}
(OWN / f"{INDEX}.json").write_text(json.dumps(found))

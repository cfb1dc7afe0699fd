"""Logs with dictionaries inside, as a ``train_step`` of Keras's guide returns them."""

import csv
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from slow import mostly_slow

import tfdistr
from tfdistr.strategies.exact.step_logs import flat_logs
from tfdistr.training.epochs import numbers_of
from tfdistr.training.reporter import Reporter, history_of

pytestmark = pytest.mark.timeout(240)

rng = np.random.default_rng(0)
X = rng.normal(size=(64, 4)).astype("float32")
Y = (X.sum(1) > 0).astype("int32")
JOB = {"batch_size": 16, "epochs": 2, "shuffle": False, "validation_data": (X[:32], Y[:32]), "verbose": 0}
NAMES = {"loss", "accuracy", "nll", "val_loss", "val_accuracy", "val_nll"}


class OfTheGuide(keras.Model):
    """Updates and returns all metrics, one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(2, kernel_initializer=keras.initializers.GlorotUniform(3))

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def _log(self, y: Any, predicted: Any, loss: Any) -> dict[str, Any]:
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, predicted)
        return {metric.name: metric.result() for metric in self.metrics}

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return self._log(y, predicted, loss)

    def test_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        predicted = self(x, training=False)
        return self._log(y, predicted, self.compute_loss(y=y, y_pred=predicted))


class OneMore(OfTheGuide):
    """Its logs are not those of its metrics: there is one more."""

    def train_step(self, data: Any) -> dict[str, Any]:
        return {**super().train_step(data), "more": {"extra": tf.constant(2.5)}}


def compiled(made: keras.Model) -> keras.Model:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    nll = keras.metrics.SparseCategoricalCrossentropy(name="nll", from_logits=True)
    made.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy", nll])
    return made


def model() -> keras.Model:
    return compiled(OfTheGuide())


def model_with_more() -> keras.Model:
    return compiled(OneMore())


class Notes(keras.callbacks.Callback):
    """Writes the logs that it sees into a file."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file, self.seen = file, []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(logs)

    def on_test_end(self, logs: Any = None) -> None:
        self.seen.append(logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen.append(logs)
        Path(self.file).write_text(json.dumps(self.seen))


def of_keras(made: keras.Model, *callbacks: keras.callbacks.Callback) -> tuple[dict, dict]:
    history = made.fit(X, Y, callbacks=list(callbacks), **JOB).history
    return history, made.evaluate(X, Y, batch_size=16, verbose=0, return_dict=True)


def assert_same(received: dict[str, Any], expected: dict[str, Any]) -> None:
    assert received.keys() == expected.keys()
    for name, values in expected.items():
        assert received[name] == pytest.approx(values, abs=1e-6), name


# Slow: starts four processes.
@pytest.mark.parametrize("how", mostly_slow(["workers", "servers"], quick=["workers"]))
def test_the_history_is_that_of_keras(how, tmp_path):
    options: dict[str, Any] = {"cluster": tfdistr.local_cluster(workers=2)}
    if how == "servers":
        servers = tfdistr.local_cluster(workers=2, ps=1)
        options = {"cluster": servers, "strategy": tfdistr.parameter_server(update="sync")}
    expected, evaluated = of_keras(model(), Notes(str(tmp_path / "keras")))
    assert expected.keys() == NAMES
    callbacks = [
        Notes(str(tmp_path / "notes")),
        keras.callbacks.CSVLogger(str(tmp_path / "log.csv")),
        keras.callbacks.TensorBoard(str(tmp_path / "board")),
    ]
    fit = tfdistr.distributed_fit(model, X, Y, callbacks=callbacks, **JOB | options)
    assert_same(fit.history, expected)
    assert_same(fit.evaluate(X, Y, batch_size=16), evaluated)
    seen, by_keras = (json.loads((tmp_path / name).read_text()) for name in ("notes", "keras"))
    for received, wanted in zip(seen, by_keras, strict=True):
        assert_same(received, wanted)
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert_same({name: [float(row[name]) for row in rows] for name in NAMES}, expected)
    assert list((tmp_path / "board").rglob("*tfevents*"))


def test_other_logs_are_those_of_the_last_step():
    expected, _ = of_keras(model_with_more())
    assert expected["extra"] == [2.5, 2.5]
    fit = tfdistr.distributed_fit(model_with_more, X, Y, **JOB)
    assert fit.history.keys() == expected.keys()
    assert_same(fit.history, expected)


def test_the_progress_has_numbers():
    events: list[dict[str, Any]] = []
    reporter = Reporter(lambda kind, **fields: events.append({"kind": kind, **fields}), chief=True)
    reporter.on_steps(1, {"loss": tf.constant(1.5), "compile_metrics": {"accuracy": tf.constant(0.5)}})
    assert events[-1]["metrics"] == {"accuracy": 0.5, "loss": 1.5}
    reporter.on_epoch_end(0, {"f1_score": tf.constant([0.25, 0.5])})
    assert events[-1]["metrics"] == {"f1_score[0]": 0.25, "f1_score[1]": 0.5}


def test_a_metric_with_several_values_is_in_the_history_as_in_keras():
    assert history_of({"all": [{"b": 1.0, "a": [2.0, 3.0]}]}) == {"b": [1.0], "a": [[2.0, 3.0]]}

    def model() -> keras.Model:
        keras.utils.set_random_seed(1)
        made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, "sigmoid")])
        made.compile("sgd", "mse", metrics=[keras.metrics.F1Score(threshold=0.5)])
        return made

    targets = np.eye(2, dtype="float32")[Y]
    by_keras = model().fit(X, targets, batch_size=16, epochs=2, shuffle=False, verbose=0).history
    job = {"batch_size": 16, "epochs": 2, "shuffle": False, "verbose": 0, "seed": 1}
    fit = tfdistr.distributed_fit(model, X, targets, **job)
    assert fit.history.keys() == by_keras.keys()
    for name, values in by_keras.items():
        np.testing.assert_allclose(fit.history[name], values, atol=1e-6)
    assert fit.metrics["f1_score"] == fit.history["f1_score"][-1]
    assert list(fit.to_frame()["metric"].unique()) == ["f1_score[0]", "f1_score[1]", "loss"]
    assert f"  f1_score[1]: {fit.metrics['f1_score'][1]:.4f}" in str(fit)
    evaluated = fit.evaluate(X, targets, batch_size=16)
    assert np.shape(evaluated["f1_score"]) == (2,)


def test_logs_are_flat_and_sorted():
    nested = {"b": 1, "a": {"d": 2, "c": {"z": 3}}}
    assert list(flat_logs(nested).items()) == [("z", 3), ("d", 2), ("b", 1)]
    assert flat_logs(numbers := [1, 2]) is numbers
    assert flat_logs({}) == {}
    from_keras = keras.src.utils.python_utils.pythonify_logs(nested)
    assert list(numbers_of(nested).items()) == list(from_keras.items())

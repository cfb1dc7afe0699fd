"""Keras 3 models that many workers train over parameter servers."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from launched import is_there
from recovered import last_started

import tfdistr
from tfdistr.errors import ArgumentError, WorkerFailedError
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.on_cluster import fit_on_cluster
from tfdistr.jobs.result import FitResult
from tfdistr.jobs.strategies import ParameterServer
from tfdistr.parameter_servers.embedding import PartitionedEmbedding
from tfdistr.supervision.events import EventReader
from tfdistr.training.job_arguments import make_job

pytestmark = pytest.mark.timeout(240)
BOUND = 1e-6
rng = np.random.default_rng(0)
# Batches of 32, 32, 32 and 1: the last one is not enough for two workers.
TOKENS = rng.integers(1, 20, size=(97, 6))
X = rng.normal(size=(97, 8)).astype("float32")
Y = (X[:, :4].sum(1) > 0).astype("int32")
WEIGHT = rng.uniform(size=97).astype("float32")


class Servers:
    """Runs a job with parameter servers, and keeps its events."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.events: list[dict[str, Any]] = []

    def fit(
        self, model: Callable[[], keras.Model], *data: Any, workers: int = 2, ps: int = 1,
        strategy: ParameterServer, **arguments: Any,
    ) -> FitResult:  # fmt: skip
        chosen = {"strategy": strategy.name, "options": strategy.options}
        job = make_job(model, *data, num_workers=workers, **chosen, **arguments)
        cluster = tfdistr.local_cluster(workers, ps=ps)
        caller = Caller(self.events.append)
        backend = strategy.backend(cluster)
        return FitResult._of(fit_on_cluster(job, ParameterServer, backend, caller, self.run_dir))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    (tmp_path / "run").mkdir()
    servers = Servers(tmp_path / "run")
    yield servers
    pids = {event["pid"] for event in servers.of("started")}
    assert pids
    assert not [pid for pid in pids if is_there(pid)]


def check_equal(received: FitResult, expected: FitResult) -> None:
    assert list(received.history) == list(expected.history)
    for name, values in expected.history.items():
        np.testing.assert_allclose(received.history[name], values, atol=BOUND, rtol=BOUND, err_msg=name)
    assert len(received.model.weights) == len(expected.model.weights)
    for mine, other in zip(received.model.weights, expected.model.weights, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), atol=BOUND, rtol=BOUND, err_msg=other.path)
    for mine, other in zip(
        received.model.optimizer.variables, expected.model.optimizer.variables, strict=True
    ):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), atol=BOUND, rtol=BOUND, err_msg=other.path)


def two_inputs() -> keras.Model:
    """A model with sparse gradients, a penalty, a schedule and two kinds of input."""
    tokens, numbers = keras.Input((6,), dtype="int32", name="tokens"), keras.Input((8,), name="numbers")
    tables = [keras.layers.Embedding(20, 4), PartitionedEmbedding(20, 4, min_shard_bytes=64, max_shards=3)]
    embedded = [keras.layers.GlobalAveragePooling1D()(table(tokens)) for table in tables]
    hidden = keras.layers.Dense(16, "relu", kernel_regularizer="l2")(
        keras.layers.Concatenate()([*embedded, numbers])
    )
    made = keras.Model({"tokens": tokens, "numbers": numbers}, keras.layers.Dense(2)(hidden))
    made.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.9)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy(from_logits=True)],
    )
    return made


class KillAndGoOn(keras.callbacks.Callback):
    """Kills worker 0, and stops the training once the worker that takes its place has made steps."""

    def __init__(self, run_dir: Path, chief: int) -> None:
        super().__init__()
        self._run_dir, self._chief = run_dir, chief
        self._made = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        events = EventReader(self._run_dir, self._chief + 1).poll()
        made = [e for e in events if e["event"] == "worker_steps"][-1]["local_steps"][0]
        if epoch == 1:
            self._made = made
            os.kill(last_started(self._run_dir, 0), signal.SIGKILL)
        elif epoch > 2 and made > self._made + 10:
            self.model.stop_training = True


def test_sync_equals_one_process_although_a_worker_is_killed(servers):
    data = {"tokens": TOKENS, "numbers": X}, Y
    arguments = {"batch_size": 32, "seed": 1, "sample_weight": WEIGHT, "validation_data": data}
    fit = servers.fit(
        two_inputs, *data, ps=2, strategy=ParameterServer(update="sync"), epochs=3000,
        callbacks=[KillAndGoOn(servers.run_dir, 4)], **arguments,
    )  # fmt: skip
    epochs = len(fit.history["loss"])
    assert epochs < 3000, "no worker has taken the place of the one that was killed"
    check_equal(fit, tfdistr.distributed_fit(two_inputs, *data, epochs=epochs, **arguments))

    (replaced,) = servers.of("replaced")
    assert replaced["worker"] == 0
    assert replaced["reason"].startswith("Worker 0 of 2 was killed by SIGKILL")
    assert len({event["pid"] for event in servers.of("started") if event["worker"] == 0}) == 2
    assert fit.params["global_step"] == epochs * 4
    assert [row["task"] for row in fit.workers] == ["worker 0", "worker 1", "ps 0", "ps 1", "chief 0"]
    assert [(row["status"], row["exit_code"]) for row in fit.workers] == [("done", 0)] * 5  # as all were told
    # The batch with one row has one share.
    assert sum(row["local_steps"] for row in fit.workers[:2]) == epochs * 7
    assert Path(fit.workers[0]["log"] + ".1").exists()


def slow_on_worker_1() -> tf.data.Dataset:
    """Examples that worker 1 takes long to read."""
    task = json.loads(os.environ["TF_CONFIG"])["task"]

    def read(x: Any, y: Any) -> Any:
        time.sleep(0.01 if task == {"type": "worker", "index": 1} else 0)
        return x, y

    def slowly(x: tf.Tensor, y: tf.Tensor) -> Any:
        x, y = tf.numpy_function(read, [x, y], [tf.float32, tf.int32])
        return tf.ensure_shape(x, [8]), tf.ensure_shape(y, [])

    return tf.data.Dataset.from_tensor_slices((X, Y)).map(slowly)


def dense() -> keras.Model:
    made = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
    return made


@pytest.mark.slow(reason="starts three or four processes that train")
def test_gradients_that_come_too_late_are_dropped_and_counted(servers):
    options = ParameterServer(update="sync", replicas_to_aggregate=1)
    fit = servers.fit(
        dense, slow_on_worker_1, strategy=options, epochs=10, batch_size=32, seed=1, drop_remainder=True,
        validation_data=(X, Y),
    )  # fmt: skip
    steps = fit.params["global_step"]
    assert steps == 10 * 3
    report = servers.of("worker_steps")[-1]
    assert sum(report["local_steps"]) == steps
    # Each batch has two shares, and one of them is used.
    assert sum(report["dropped"]) + report["not_computed"] == steps
    assert report["dropped"][1] > 0
    assert report["local_steps"][0] > report["local_steps"][1]
    assert [row["dropped"] for row in fit.workers[:2]] == report["dropped"]
    assert fit.metrics["accuracy"] > 0.7
    # What came too late for a step came while the batches of the validation were awaited, too.
    assert fit.metrics["val_accuracy"] == pytest.approx(fit.model.evaluate(X, Y, verbose=0)[1], abs=BOUND)


class Batches(keras.callbacks.Callback):
    """Writes what is called, what cannot be done meanwhile, and stops the training after some batches."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._batches, self._refused = path, [], ""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._batches.append([batch, float(logs["loss"])])
        if len(self._batches) == 150:
            self.model.stop_training = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        try:
            self.model.predict(X)
        except ArgumentError as error:
            self._refused = str(error)

    def on_train_end(self, logs: Any = None) -> None:
        self._path.write_text(json.dumps({"batches": self._batches, "refused": self._refused}))


def test_two_asynchronous_workers_train_and_every_step_counts(servers, tmp_path):
    fit = servers.fit(
        dense, X, Y, strategy=ParameterServer(update="async"), epochs=30, batch_size=8, seed=1,
        steps_per_epoch=15, callbacks=[Batches(tmp_path / "calls.json")],
    )  # fmt: skip
    assert fit.history["loss"][-1] < 0.5 * fit.history["loss"][0]
    calls = json.loads((tmp_path / "calls.json").read_text())
    assert [batch for batch, _ in calls["batches"]][:150] == [*range(15)] * 10
    assert calls["refused"].startswith("A callback cannot train, evaluate or predict while the variables are")
    # The batch with which it was stopped was the last one of its epoch; what was under way is done.
    made = fit.params["global_step"]
    assert made == len(calls["batches"]) == 10 * 15
    assert int(fit.model.optimizer.iterations) == made
    steps = [row["local_steps"] for row in fit.workers[:2]]
    assert sum(steps) == made
    assert min(steps) > 0
    reports = [event["global_step"] for event in servers.of("worker_steps")]
    assert reports == sorted(reports)
    assert fit.model.evaluate(X, Y, verbose=0)[1] > 0.85
    assert not servers.of("warning")


class KillServer(keras.callbacks.Callback):
    def __init__(self, run_dir: Path, index: int) -> None:
        super().__init__()
        self._run_dir, self._index = run_dir, index

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1:
            os.kill(last_started(self._run_dir, self._index), signal.SIGKILL)


def test_a_parameter_server_that_dies_ends_the_run_at_once(servers):
    began = time.time()
    with pytest.raises(WorkerFailedError) as caught:
        servers.fit(
            dense, X, Y, ps=2, strategy=ParameterServer(), epochs=10_000, batch_size=32,
            callbacks=[KillServer(servers.run_dir, 3)],
        )  # fmt: skip
    error = caught.value
    assert error.message.startswith(f"The parameter server ps 1 of 2 on {error.host} was killed by SIGKILL")
    assert (error.worker, error.exit_code) == (3, -signal.SIGKILL)
    assert error.log == str(servers.run_dir / "logs" / "worker-3.log")
    second = [event for event in servers.of("epoch_end") if event["epoch"] == 1]
    assert second[0]["time"] > began
    assert time.time() - second[0]["time"] < 15
    assert not servers.of("replaced")


def broken_on_worker() -> tf.data.Dataset:
    if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "worker":
        raise ValueError("no such file: pictures.zip")
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(32)


def test_an_error_of_the_data_function_on_a_worker_is_said(servers):
    with pytest.raises(WorkerFailedError, match=r"no such file: pictures\.zip") as caught:
        servers.fit(dense, broken_on_worker, workers=1, strategy=ParameterServer(), epochs=2)
    assert caught.value.worker == 2
    assert caught.value.message.startswith("The chief on ")

"""Jobs with faults: each ends, resumed or by itself, with the bits of the job without a fault.

`make faults` has the errors of such jobs, `make soak` random faults.
"""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from launched import processes_of, wait_for
from recovered import LAUNCHER, Attempt, Job, Strikes, positions
from resumed import At, OwnFit, OwnLoop, X, Y, breaks, executes_three, of_class, train, two_optimizers
from slow import mostly_slow
from subprocess_cluster import subprocess_cluster

import tfdistr
from tfdistr.errors import JobStoppedError
from tfdistr.supervision.events import EventReader

pytestmark = pytest.mark.timeout(500)
ROWS = 89  # of 8: twelve batches, the last with one example
RING, MPI = (tfdistr.multi_worker_mirrored(communication=way) for way in ("ring", "mpi"))
KILL, TELL = signal.SIGKILL, signal.SIGTERM
#: The processes of two workers, a parameter server and the chief.
WORKER, SERVER, CHIEF = 0, 2, 3


class Remembers(keras.callbacks.Callback):
    """Has random numbers, arrays and more among what it knows, and takes part in every batch."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder  # which no checkpoint has

    def on_train_begin(self, logs: Any = None) -> None:
        self.drawn: list[float] = []
        self.sums = np.zeros(2)
        self.seen = {"batches": (0, None)}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.sums = self.sums + np.array([batch, logs["loss"]])
        self.seen["batches"] = (self.seen["batches"][0] + 1, batch)
        self.drawn.append(random.random() + np.random.random())

    def on_train_end(self, logs: Any = None) -> None:
        (self.folder / "remembered").write_text(f"{self.drawn} {self.sums.tolist()} {self.seen}")


class OwnLogs(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        return {"doubled": 2 * super().train_step(data)["loss"]}


class ReadsOn(keras.Sequential):
    """Has a loop of its own, which reads on in its data and calls the callbacks of epochs alone."""

    def fit(self, x: Any, *, epochs: int, initial_epoch: int, steps_per_epoch: int, callbacks: Any,
            **given: Any) -> Any:  # fmt: skip
        listed = keras.callbacks.CallbackList(callbacks, add_history=True, model=self, epochs=epochs)
        self.stop_training = False
        listed.on_train_begin()
        batches = iter(x)
        for epoch in range(initial_epoch, epochs):
            listed.on_epoch_begin(epoch)
            seen = [float(self.train_on_batch(*next(batches))[0]) for _ in range(steps_per_epoch)]
            listed.on_epoch_end(epoch, {"loss": sum(seen)})
        listed.on_train_end()
        return self.history


def with_layers() -> keras.Model:
    made = keras.Sequential([
        keras.Input((4,)), keras.layers.Dense(8, "relu", name="first"), keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.3), keras.layers.Dense(2, "softmax", name="last"),
    ])  # fmt: skip
    made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
    return made


def of_keras(folder: Path) -> list[keras.callbacks.Callback]:
    best = str(folder / "best.weights.h5")
    return [
        keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("loss", patience=0, min_delta=0.1),
        keras.callbacks.CSVLogger(str(folder / "log.csv")),
        keras.callbacks.ModelCheckpoint(best, save_best_only=True, save_weights_only=True),
    ]


def remembers(folder: Path) -> list[keras.callbacks.Callback]:
    return [Remembers(folder)]


def examples() -> tf.data.Dataset:
    """Of a length that is not known."""
    spec = (tf.TensorSpec([4], tf.float32), tf.TensorSpec([], tf.int64))
    return tf.data.Dataset.from_generator(lambda: iter(zip(X, Y, strict=True)), output_signature=spec)


def batches() -> Any:
    """The same as a Python generator of batches."""
    return ((X[first : first + 8], Y[first : first + 8]) for first in range(0, len(X), 8))


IN_ORDER = {"x": examples, "y": None}
OF_BATCHES = {"x": batches, "y": None, "batch_size": None}
#: Jobs of this process, which break in their third epoch.
HERE: dict[str, Job] = {
    "callbacks of Keras": Job({"validation_data": (X, Y), "checkpoint_every": 7}, of_keras),
    "every batch": Job({"checkpoint_every": 7}, remembers),
    "steps_per_execution": Job({"make": executes_three, "checkpoint_every": 7}),
    "in order": Job(IN_ORDER | {"checkpoint_every": 7}),
    "to the end with logs of its own": Job(IN_ORDER | {"make": of_class(OwnLogs), "checkpoint_every": 6}),
    "steps_per_epoch and class_weight": Job(
        {"steps_per_epoch": 7, "class_weight": {0: 1.0, 1: 2.0}, "checkpoint_every": 5}
    ),
    "a generator, within a pass": Job(OF_BATCHES | {"checkpoint_every": 7}),
    "a generator, between two passes": Job(OF_BATCHES),
    "two optimizers": Job({"make": two_optimizers, "checkpoint_every": 7}),
    "a loop of Keras": Job({"make": of_class(OwnLoop)}),
    "a fit() of its own, data in order": Job(IN_ORDER | {"make": of_class(OwnFit)}),
    "a fit() of its own that reads on": Job({"make": of_class(ReadsOn)}),
    "mirrored": Job({"strategy": tfdistr.mirrored(devices=["cpu:0"]), "checkpoint_every": 5}),
}  # fmt: skip


def virtual(cluster: Any, strategy: Any = RING, **more: Any) -> Mapping[str, Any]:
    """Workers that have the bits of one worker, however many there are."""
    return {"cluster": cluster, "strategy": strategy, "virtual_workers": 6, **more}


def layers(first: str, last: str, workers: int | None = 2) -> Mapping[str, Any]:
    """Layers on several workers, or in this process, which have the same bits."""
    strategy = tfdistr.model_parallel(placement={"first": first, "last": last})
    return {"cluster": tfdistr.local_cluster(workers) if workers else None, "strategy": strategy}


NAMED = {"make": with_layers, "x": X[:ROWS], "y": Y[:ROWS], "checkpoint_every": None}
SERVERS = {"cluster": tfdistr.local_cluster(2, ps=1), "strategy": tfdistr.parameter_server(update="sync")}
ON_WORKERS: dict[str, Job] = {
    "workers": Job(NAMED | virtual(tfdistr.local_cluster(1))),
    "layers": Job(NAMED | layers("cpu:0", "cpu:0", workers=None)),
    "servers": Job(NAMED | SERVERS),
}
JOBS = HERE | ON_WORKERS


def tear(run: Path) -> None:
    newest = max((run / "checkpoints").glob("*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-100])


def saved_at(epoch: int, step: int) -> Callable[[Path], None]:
    def check(run: Path) -> None:
        assert positions(run)[-1] == (epoch, step)

    return check


def killed(*faults: tuple[int, int, int, int]) -> Callable[[Path], list[Any]]:
    return lambda run: [Strikes(run, *faults)]


def told(epoch: int, batch: int, process: int, **given: Any) -> Attempt:
    """An attempt, of which one process is told to end at a batch."""
    return Attempt(killed((epoch, batch, process, TELL)), JobStoppedError, given=given)


def tells_itself(run: Path) -> list[Any]:
    return [At(1, lambda: os.kill(os.getpid(), TELL))]


def breaks_in(epoch: int, **more: Any) -> Attempt:
    return Attempt(lambda run: [At(epoch, breaks)], RuntimeError, "the disk is full", **more)


@dataclass(frozen=True)
class Row:
    """A job with faults.

    Attributes:
        job: The job without faults.
        attempts: All attempts to train it.
        given: The arguments that these have, and the job without faults has not.
        said: A part of a warning; None if none names the workers.
        left: How many processes there are at the end; None if this process trains.
    """

    job: str
    attempts: Sequence[Attempt]
    given: Mapping[str, Any] = field(default_factory=dict)
    said: str | None = None
    left: int | None = None


END = Attempt()
FAULTS: dict[str, Row] = {
    **{name: Row(name, [breaks_in(2), END]) for name in HERE},
    "callbacks of Keras": Row("callbacks of Keras", [breaks_in(2, then=saved_at(1, 9)), END]),
    "a torn checkpoint": Row(
        "callbacks of Keras", [breaks_in(3, then=tear), END], {"checkpoint_every": "epoch"}, "it is torn"),
    "this process, told to end": Row(
        "callbacks of Keras", [Attempt(tells_itself, JobStoppedError), END], {"checkpoint_every": 1000}),
    # The elastic job takes the worker back; that of another cluster goes on without it.
    "a worker of an elastic job, killed": Row(
        "workers", [Attempt(killed((1, 1, 2, KILL)))],
        virtual(tfdistr.local_cluster((2, 3)), checkpoint_every=3), "Workers are available again: ", 3),
    "a worker of another cluster, killed": Row(
        "workers", [Attempt(killed((1, 1, 1, KILL)))],
        virtual(subprocess_cluster(3), failures=tfdistr.on_failure(min_workers=2), checkpoint_every=3),
        left=2),
    "chief, worker and server, killed": Row(
        "servers", [Attempt(killed((1, 4, CHIEF, KILL), (2, 1, WORKER, KILL), (2, 5, SERVER, KILL)))],
        {"failures": tfdistr.on_failure(max_restarts=1), "checkpoint_every": 3}, left=4),
    "a worker, then the launcher, by the ring and MPI, told to end": Row(
        "workers", [told(0, 1, 1), told(2, 1, LAUNCHER, strategy=MPI), END],
        virtual(tfdistr.local_cluster(2), checkpoint_every=1000), left=2),
    "a worker with a layer, which another one gets, told to end": Row(
        "layers", [told(1, 7, 1), Attempt(given=layers("worker 1", "worker 0"))],
        layers("worker 0", "worker 1") | {"checkpoint_every": 1000}, left=3),
    "a worker with a layer, which this process gets, told to end": Row(
        "layers", [told(1, 7, 1), Attempt(given=layers("cpu:0", "cpu:0", workers=None))],
        layers("worker 0", "worker 1") | {"checkpoint_every": 1000}),
    "a worker, then the chief of servers, told to end": Row(
        "servers", [told(0, 1, WORKER), told(2, 1, CHIEF), END], {"checkpoint_every": 1000}, left=4),
}  # fmt: skip
QUICK = (
    "callbacks of Keras", "a loop of Keras", "a generator, within a pass", "a generator, between two passes",
    "a torn checkpoint", "this process, told to end", "a worker of another cluster, killed",
)  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Any]]:
    """Gives what a job gives without a fault; it is trained once."""
    trained: dict[str, list[Any]] = {}

    def of(name: str) -> list[Any]:
        if name not in trained:
            trained[name] = JOBS[name].trained(tmp_path_factory.mktemp("undisturbed"))
        return trained[name]

    return of


# Slow: starts up to four processes, or trains three times for each kind of run.
@pytest.mark.parametrize("name", mostly_slow(FAULTS, quick=QUICK))
def test_a_job_with_a_fault_ends_with_the_bits_of_one_without(tmp_path, undisturbed, recwarn, caplog, name):
    row, run = FAULTS[name], tmp_path / "run"
    fit = JOBS[row.job].check(tmp_path, undisturbed(row.job), row.attempts, **row.given)
    given = {"checkpoint_every": "epoch"} | JOBS[row.job].given | row.given
    assert fit.params["checkpoint_every"] == given["checkpoint_every"]
    said = [caplog.text, *(str(warning.message) for warning in recwarn)]
    assert row.said is None or any(row.said in text for text in said)
    assert row.said or not any("Workers are available again: " in text for text in said)
    if row.left is not None:
        assert len(fit.workers) == row.left
        signals = [fault for attempt in row.attempts for each in attempt.fault(run) for fault in each._faults]
        assert len(list(run.glob("fault-*"))) == len(signals)
        assert ("killed" in name) == any((run / "logs").glob("*failed*"))
    if row.job == "servers":
        assert fit.params["global_step"] == 4 * 12
        assert "killed" not in name or sum(row["local_steps"] for row in fit.workers[:2]) == 4 * 23


class Slow(keras.callbacks.Callback):
    """Has the first step of the second epoch take long."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__()
        self._run_dir = run_dir

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self._epoch, batch) == (1, 0):
            (self._run_dir / f"slow-{tfdistr.worker_index()}").touch()
            time.sleep(6)


@pytest.mark.slow(reason="a step takes long")
def test_all_processes_are_told_to_end_while_a_step_takes_long(tmp_path):
    """As Slurm does: the launcher and what stands between it and the workers get SIGTERM, too."""
    run = tmp_path / "run"

    def tell() -> None:
        assert wait_for(lambda: len(list(run.glob("slow-*"))) == 2, 150)
        for pid in [*processes_of(run), os.getpid()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, TELL)

    thread = threading.Thread(target=tell)
    thread.start()
    with pytest.raises(JobStoppedError, match=r"saved a checkpoint at epoch 2, step [1-9]"):
        train(run, cluster=tfdistr.local_cluster(2), strategy=MPI, checkpoint_every=3, callbacks=[Slow(run)])
    thread.join()
    assert [event["event"] for event in EventReader(run, 2).poll()].count("stopped") == 2
    assert wait_for(lambda: not processes_of(run), 10)


@pytest.mark.slow(reason="starts four processes, and again")
def test_an_asynchronous_run_makes_each_step_of_its_epochs(tmp_path):
    run = tmp_path / "run"
    fit = train(
        run, **NAMED | SERVERS | {"strategy": "parameter_server", "checkpoint_every": 3},
        failures=tfdistr.on_failure(max_restarts=1), validation_data=(X[:40], Y[:40]),
        callbacks=[Strikes(run, (2, 3, SERVER, KILL))],
    )  # fmt: skip
    assert len(list(run.glob("fault-*"))) == 1
    assert fit.params["global_step"] == int(fit.model.optimizer.iterations) == 4 * 12
    assert sum(row["local_steps"] for row in fit.workers[:2]) == 4 * 12
    assert [len(values) for values in fit.history.values()] == [4] * 4

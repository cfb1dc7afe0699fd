"""Processes of a job that are killed or told to end: the job ends with the bits of an undisturbed one.

`make faults` has the errors of such jobs, `make soak` random faults.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import pytest
from launched import processes_of, wait_for
from resumed import X, Y, bits
from subprocess_cluster import subprocess_cluster

import tfdistr
from tfdistr.checkpoint.folder import CheckpointFolder, checkpoint_folder
from tfdistr.errors import JobStoppedError
from tfdistr.supervision.events import EventReader

pytestmark = pytest.mark.timeout(500)
ROWS = 89  # of 8: twelve batches, the last with one example
RING, MPI = (tfdistr.multi_worker_mirrored(communication=way) for way in ("ring", "mpi"))
KILL, TELL = signal.SIGKILL, signal.SIGTERM
LAUNCHER = -1
#: The processes of two workers, a parameter server and the chief.
WORKER, SERVER, CHIEF = 0, 2, 3
#: When a process gets a signal: epoch, batch, which process, and the signal.
Fault = tuple[int, int, int, int]
Given = Mapping[str, Any]


def model() -> keras.Model:
    made = keras.Sequential([
        keras.Input((4,)), keras.layers.Dense(8, "relu", name="first"), keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.3), keras.layers.Dense(2, "softmax", name="last"),
    ])  # fmt: skip
    made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
    return made


class Strikes(keras.callbacks.Callback):
    """Sends each signal once in a run, from whichever process comes to the batch first."""

    def __init__(self, run_dir: Path, faults: tuple[Fault, ...]) -> None:
        super().__init__()
        self._run_dir, self._faults, self._launcher, self._epoch = run_dir, faults, os.getpid(), -1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for number, (*when, process, sent) in enumerate(self._faults):
            if [self._epoch, batch] == when:
                with contextlib.suppress(FileExistsError):
                    (self._run_dir / f"fault-{number}").touch(exist_ok=False)
                    os.kill(started(self._run_dir, process)[-1] if process >= 0 else self._launcher, sent)


def started(run_dir: Path, process: int) -> list[int]:
    events = EventReader(run_dir, process + 1).poll()
    return [event["pid"] for event in events if event["event"] == "started" and event["worker"] == process]


def train(run_dir: Path, given: Given, *faults: Fault, **more: Any) -> tfdistr.FitResult:
    defaults = {
        "batch_size": 8, "epochs": 4, "seed": 1, "verbose": 0, "checkpoint_every": 3,
        "callbacks": [Strikes(run_dir, faults)],
    }  # fmt: skip
    return tfdistr.distributed_fit(
        model, X[:ROWS], Y[:ROWS], run_dir=run_dir, **defaults | dict(given) | more
    )


def virtual(cluster: Any, strategy: Any = RING, **more: Any) -> Given:
    """Workers that have the bits of one worker, however many there are."""
    return {"cluster": cluster, "strategy": strategy, "virtual_workers": 6, **more}


def layers(first: str, last: str, workers: int | None = 2) -> Given:
    """Layers on several workers, or in this process, which have the same bits."""
    strategy = tfdistr.model_parallel(placement={"first": first, "last": last})
    return {"cluster": tfdistr.local_cluster(workers) if workers else None, "strategy": strategy}


SERVERS = {"cluster": tfdistr.local_cluster(2, ps=1), "strategy": tfdistr.parameter_server(update="sync")}
#: Undisturbed jobs, whose bits the others must have.
UNDISTURBED: dict[str, Given] = {
    "workers": virtual(tfdistr.local_cluster(1)),
    "layers": layers("cpu:0", "cpu:0", workers=None),
    "servers": SERVERS,
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tfdistr.FitResult]:
    """Gives the undisturbed job of a kind, which is trained once."""
    trained: dict[str, tfdistr.FitResult] = {}

    def of(kind: str) -> tfdistr.FitResult:
        if kind not in trained:
            run_dir = tmp_path_factory.mktemp("undisturbed") / kind
            trained[kind] = train(run_dir, UNDISTURBED[kind], checkpoint_every=None)
        return trained[kind]

    return of


RESTARTED = {
    # The elastic job takes the worker back; that of another cluster goes on without it.
    "a worker of an elastic job": ("workers", virtual(tfdistr.local_cluster((2, 3))), [(1, 1, 2, KILL)], 3),
    "a worker of another cluster": (
        "workers", virtual(subprocess_cluster(3), failures=tfdistr.on_failure(min_workers=2)),
        [(1, 1, 1, KILL)], 2,
    ),
    "chief, worker and server": (
        "servers", SERVERS | {"failures": tfdistr.on_failure(max_restarts=1)},
        [(1, 4, CHIEF, KILL), (2, 1, WORKER, KILL), (2, 5, SERVER, KILL)], 4,
    ),
}  # fmt: skip


# Slow: starts up to four processes, and trains again and again.
@pytest.mark.parametrize(
    "who",
    [
        name if "cluster" in name else pytest.param(name, marks=pytest.mark.slow(reason="restarts"))
        for name in RESTARTED
    ],
)
def test_a_job_whose_processes_are_killed_ends_with_the_same_bits(tmp_path, undisturbed, recwarn, who):
    kind, given, faults, left = RESTARTED[who]
    run = tmp_path / "run"
    fit = train(run, given, *faults)
    assert len(list(run.glob("fault-*"))) == len(faults)
    assert bits(fit) == bits(undisturbed(kind))
    assert len(fit.workers) == left
    assert list((run / "logs").glob("*failed*"))
    assert wait_for(lambda: not processes_of(run), 10)
    said = [str(warning.message) for warning in recwarn]
    assert any("Workers are available again: " in text for text in said) == ("elastic" in who)
    if kind == "servers":
        assert fit.params["global_step"] == undisturbed(kind).params["global_step"] == 4 * 12
        assert sum(row["local_steps"] for row in fit.workers[:2]) == 4 * 23


STOPPED = {
    "a worker, then the launcher, by the ring and MPI": ("workers", [
        (virtual(tfdistr.local_cluster(2), RING), (0, 1, 1, TELL)),
        (virtual(tfdistr.local_cluster(2), MPI), (2, 1, LAUNCHER, TELL)),
        (virtual(tfdistr.local_cluster(2), RING), None)]),
    "a worker with a layer, which another one gets": ("layers", [
        (layers("worker 0", "worker 1"), (1, 7, 1, TELL)), (layers("worker 1", "worker 0"), None)]),
    "a worker with a layer, which this process gets": ("layers", [
        (layers("worker 0", "worker 1"), (1, 7, 1, TELL)), (layers("cpu:0", "cpu:0", workers=None), None)]),
    "a worker, then the chief of servers": ("servers", [
        (SERVERS, (0, 1, WORKER, TELL)), (SERVERS, (2, 1, CHIEF, TELL)), (SERVERS, None)]),
}  # fmt: skip


@pytest.mark.slow(reason="starts up to four processes for each run")
@pytest.mark.parametrize("who", STOPPED)
def test_a_job_that_is_told_to_end_resumes_with_the_same_bits(tmp_path, undisturbed, who):
    kind, runs = STOPPED[who]
    run = tmp_path / "run"
    newest = None
    for number, (given, fault) in enumerate(runs):
        faults = [*[(0, 0, 0, 0)] * number, fault]  # files of the earlier faults are there
        options = {"checkpoint_every": 1000, "resume": number > 0}
        if fault is None:
            fit = train(run, given, **options)
            continue
        with pytest.raises(JobStoppedError, match=r"saved a checkpoint at epoch \d, step") as caught:
            train(run, given, *faults, **options)
        assert str(caught.value.fix) == f"Repeat the call with run_dir='{run}' and resume=True."
        assert wait_for(lambda: not processes_of(run), 10)
        before, newest = newest, CheckpointFolder(checkpoint_folder(run)).positions()[-1]
        assert before is None or newest > before
    assert bits(fit) == bits(undisturbed(kind))
    again = train(run, given, **options)  # the run is complete: no worker starts
    assert bits(again) == bits(fit)
    assert again.workers == fit.workers or given["cluster"] is None


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
        train(run, {"cluster": tfdistr.local_cluster(2), "strategy": MPI}, callbacks=[Slow(run)])
    thread.join()
    assert [event["event"] for event in EventReader(run, 2).poll()].count("stopped") == 2
    assert wait_for(lambda: not processes_of(run), 10)


@pytest.mark.slow(reason="starts four processes, and again")
def test_an_asynchronous_run_makes_each_step_of_its_epochs(tmp_path):
    failures = tfdistr.on_failure(max_restarts=1)
    given = SERVERS | {
        "strategy": "parameter_server",
        "failures": failures,
        "validation_data": (X[:40], Y[:40]),
    }
    fit = train(tmp_path / "run", given, (2, 3, SERVER, KILL))
    assert len(list((tmp_path / "run").glob("fault-*"))) == 1
    assert fit.params["global_step"] == int(fit.model.optimizer.iterations) == 4 * 12
    assert sum(row["local_steps"] for row in fit.workers[:2]) == 4 * 12
    assert [len(values) for values in fit.history.values()] == [4] * 4

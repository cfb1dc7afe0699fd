"""Parameter servers whose processes are killed or told to end: the training continues from its checkpoint."""

import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from launched import is_there
from resumed import bits

import tfdistr
from tfdistr.checkpoint.folder import CheckpointFolder, Position, checkpoint_folder
from tfdistr.errors import JobStoppedError
from tfdistr.supervision.events import EventReader

pytestmark = pytest.mark.timeout(400)
rng = np.random.default_rng(0)
X = rng.normal(size=(97, 8)).astype("float32")  # of 16: seven batches, the last with one example
Y = (X[:, :4].sum(1) > 0).astype("int32")
#: The processes of two workers, a parameter server and the chief, by their index.
WORKER, SERVER, CHIEF = 0, 2, 3


def model() -> keras.Model:
    made = keras.Sequential([
        keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.3), keras.layers.Dense(2),
    ])  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], jit_compile=False)
    return made


class Kills(keras.callbacks.Callback):
    """Sends signals to processes of the job, each once: the callback is in the chief.

    Args:
        run_dir: The run directory.
        faults: The epoch, the batch, the process and the signal.
    """

    def __init__(self, run_dir: Path, *faults: tuple[int, int, int, int]) -> None:
        super().__init__()
        self._run_dir, self._faults = run_dir, faults
        self._epoch = -1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for number, (*when, process, sent) in enumerate(self._faults):
            done = self._run_dir / f"fault-{number}"
            if [self._epoch, batch] == when and not done.exists():
                done.touch()
                os.kill(started(self._run_dir, process)[-1], sent)


def started(run_dir: Path, process: int) -> list[int]:
    events = EventReader(run_dir, process + 1).poll()
    return [e["pid"] for e in events if e["event"] == "started" and e["worker"] == process]


def train(run_dir: Path, *faults: tuple[int, int, int, int], **given: Any) -> tfdistr.FitResult:
    defaults: dict[str, Any] = {
        "batch_size": 16, "epochs": 4, "seed": 1, "verbose": 0, "checkpoint_every": 3,
        "strategy": tfdistr.parameter_server(update="sync"),
        "validation_data": (X[:40], Y[:40]), "callbacks": [Kills(run_dir, *faults)],
    }  # fmt: skip
    return tfdistr.distributed_fit(
        model, X, Y, run_dir=run_dir, cluster=tfdistr.local_cluster(2, ps=1),
        **defaults | given,
    )  # fmt: skip


def positions(run_dir: Path) -> list[Position]:
    return CheckpointFolder(checkpoint_folder(run_dir)).positions()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: Any) -> tfdistr.FitResult:
    return train(tmp_path_factory.mktemp("undisturbed") / "run", checkpoint_every=None)


@pytest.mark.slow(reason="starts four processes, and trains three times")
def test_a_synchronous_run_ends_with_the_same_bits_whoever_is_killed(tmp_path, undisturbed):
    run = tmp_path / "run"
    killed = [(1, 4, CHIEF), (2, 1, WORKER), (2, 5, SERVER)]
    fit = train(
        run, *((*fault, signal.SIGKILL) for fault in killed), failures=tfdistr.on_failure(max_restarts=1)
    )
    assert len(list(run.glob("fault-*"))) == 3
    kept = sorted(path.name for path in (run / "logs").glob("*failed*"))
    assert {name.rpartition(".")[2] for name in kept} == {"failed-1", "failed-2"}
    assert bits(fit) == bits(undisturbed)
    assert fit.params["global_step"] == undisturbed.params["global_step"] == 4 * 7
    assert sum(row["local_steps"] for row in fit.workers[:2]) == 4 * 13
    assert not [pid for index in range(4) for pid in started(run, index) if is_there(pid)]


@pytest.mark.slow(reason="starts four processes, and trains three times")
def test_a_run_that_is_told_to_end_goes_on(tmp_path, undisturbed):
    """First a worker is told, then the chief of the run that continues."""
    run = tmp_path / "run"
    told = [(0, 1, WORKER, signal.SIGTERM), (2, 1, CHIEF, signal.SIGTERM)]
    with pytest.raises(JobStoppedError, match=r"saved a checkpoint at epoch [12], step"):
        train(run, told[0], checkpoint_every=1000)
    first = positions(run)
    assert len(first) > 0
    with pytest.raises(JobStoppedError, match=r"saved a checkpoint at epoch [34], step"):
        train(run, *told, checkpoint_every=1000, resume=True)
    assert positions(run)[-1] > first[-1]
    fit = train(run, checkpoint_every=1000, resume=True)
    assert bits(fit) == bits(undisturbed)
    again = train(run, checkpoint_every=1000, resume=True)  # the run is complete: nothing starts
    assert bits(again) == bits(fit)
    assert (again.params["global_step"], again.workers) == (fit.params["global_step"], fit.workers)


@pytest.mark.slow(reason="starts four processes, and trains three times")
def test_an_asynchronous_run_makes_each_step_of_its_epochs(tmp_path):
    run = tmp_path / "run"
    fit = train(
        run, (2, 3, SERVER, signal.SIGKILL), strategy="parameter_server",
        failures=tfdistr.on_failure(max_restarts=1),
    )
    assert len(list(run.glob("fault-*"))) == 1
    assert fit.params["global_step"] == int(fit.model.optimizer.iterations) == 4 * 7
    assert sum(row["local_steps"] for row in fit.workers[:2]) == 4 * 7
    assert [len(values) for values in fit.history.values()] == [4] * 4

"""Layers on several devices or workers: training continues from its checkpoint, also with other places."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import keras
import pytest
from resumed import X, Y, bits

import tfdistr
from tfdistr.checkpoint.folder import CheckpointFolder, checkpoint_folder
from tfdistr.errors import JobStoppedError
from tfdistr.supervision.events import EventReader

pytestmark = pytest.mark.timeout(400)
APART = {"first": "worker 0", "last": "worker 1"}


def model() -> keras.Model:
    made = keras.Sequential([
        keras.layers.Dense(8, "relu", name="first"), keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.3), keras.layers.Dense(2, "softmax", name="last"),
    ])  # fmt: skip
    made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
    return made


class Tells(keras.callbacks.Callback):
    """Tells the second worker to end, at a batch of the second epoch: it is in the chief."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__()
        self._run_dir = run_dir
        self._epoch = -1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self._epoch, batch) == (1, 7):
            os.kill(started(self._run_dir)[1], signal.SIGTERM)


def started(run_dir: Path) -> dict[int, int]:
    return {e["worker"]: e["pid"] for e in EventReader(run_dir, 3).poll() if e["event"] == "started"}


def train(run_dir: Path, placement: Any = None, workers: int | None = 2, **given: Any) -> tfdistr.FitResult:
    cluster = tfdistr.local_cluster(workers) if workers else None
    defaults: dict[str, Any] = {
        "batch_size": 8, "epochs": 3, "seed": 1, "verbose": 0, "checkpoint_every": 5,
    }  # fmt: skip
    return tfdistr.distributed_fit(
        model, X, Y, run_dir=run_dir, strategy=tfdistr.model_parallel(placement=placement or APART),
        cluster=cluster, **defaults | given,
    )  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: Any) -> list[bytes]:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    return bits(train(run, {"first": "cpu:0"}, workers=None))


@pytest.fixture(scope="module")
def told(tmp_path_factory: Any) -> Path:
    """A run that was told to end."""
    run = tmp_path_factory.mktemp("told") / "run"
    with pytest.raises(JobStoppedError, match=r"saved a checkpoint at epoch [23], step"):
        train(run, callbacks=[Tells(run)], checkpoint_every=1000)
    assert CheckpointFolder(checkpoint_folder(run)).positions()
    return run


@pytest.mark.slow(reason="starts three processes for each run")
@pytest.mark.parametrize(
    ("placement", "workers"),
    [({"first": "worker 1", "last": "worker 0"}, 2), ({"first": "cpu:0"}, None)],
    ids=["exchanged", "this process"],
)
def test_a_run_that_is_told_to_end_goes_on_with_other_places(tmp_path, told, undisturbed, placement, workers):
    run = shutil.copytree(told, tmp_path / "run")
    assert bits(train(run, placement, workers, resume=True)) == undisturbed

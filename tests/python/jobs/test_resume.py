"""Checkpoints, exact resume and restarts in this process; test_recovery.py has workers."""

import os
import random
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from refusals import assert_says
from resumed import At, OwnFit, OwnLoop, X, Y, bits, breaks, executes_three, train
from slow import mostly_slow

import tfdistr
from tfdistr.checkpoint.folder import CheckpointFolder, checkpoint_folder
from tfdistr.clusters.local.local_cluster import LocalCluster, describe_local_cluster
from tfdistr.errors import ArgumentError, JobStoppedError


class Remembers(keras.callbacks.Callback):
    """Has random numbers, arrays and more among what it knows, and takes part in every batch."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.drawn: list[float] = []
        self.sums = np.zeros(2)
        self.seen = {"batches": (0, None)}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.sums = self.sums + np.array([batch, logs["loss"]])
        self.seen["batches"] = (self.seen["batches"][0] + 1, batch)
        self.drawn.append(random.random() + np.random.random())


class OwnLogs(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        return {"doubled": 2 * super().train_step(data)["loss"]}


def of_class(kind: type) -> Any:
    def make() -> keras.Model:
        layers = [keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.3), keras.layers.Dense(2, "softmax")]
        made = kind(layers)
        made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return made

    return make


def positions(run_dir: Path) -> list[tuple[int, int]]:
    return [tuple(position) for position in CheckpointFolder(checkpoint_folder(run_dir)).positions()]


def callbacks_with(folder: Path, last: Any = None) -> list[Any]:
    found = [
        keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("loss", patience=0, min_delta=0.1),
        keras.callbacks.CSVLogger(str(folder / "log.csv")),
        keras.callbacks.ModelCheckpoint(
            str(folder / "best.weights.h5"), save_best_only=True, save_weights_only=True
        ),
    ]
    return [*found, *([last] if last else [])]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    fit = train(folder / "run", validation_data=(X, Y), callbacks=callbacks_with(folder))
    return bits(fit), (folder / "log.csv").read_text(), (folder / "best.weights.h5").read_bytes()


def test_a_run_goes_on_where_it_failed(tmp_path, undisturbed):
    given = {"validation_data": (X, Y), "checkpoint_every": 7}
    with pytest.raises(RuntimeError, match="the disk is full"):
        train(tmp_path / "run", callbacks=callbacks_with(tmp_path, At(2, breaks)), **given)
    assert positions(tmp_path / "run")[-1:] == [(1, 9)]
    fit = train(tmp_path / "run", callbacks=callbacks_with(tmp_path), resume=True, **given)
    assert bits(fit) == undisturbed[0]
    assert (tmp_path / "log.csv").read_text() == undisturbed[1]
    assert len((tmp_path / "best.weights.h5").read_bytes()) == len(undisturbed[2])
    assert fit.params["checkpoint_every"] == 7


def generator() -> tf.data.Dataset:
    """Of a length that is not known."""
    spec = (tf.TensorSpec([4], tf.float32), tf.TensorSpec([], tf.int64))
    return tf.data.Dataset.from_generator(lambda: iter(zip(X, Y, strict=True)), output_signature=spec)


def batches() -> Any:
    """The same as a Python generator of batches."""
    return ((X[first : first + 8], Y[first : first + 8]) for first in range(0, len(X), 8))


QUICK = ("a loop of Keras", "a generator, within a pass", "a generator, between two passes")
CASES: dict[str, dict[str, Any]] = {
    "every batch": {"remembers": True, "checkpoint_every": 7},
    "steps_per_execution": {"make": executes_three, "checkpoint_every": 7},
    "in order": {"x": generator, "y": None, "checkpoint_every": 7},
    "to the end with logs of its own": {
        "make": of_class(OwnLogs),
        "x": generator,
        "y": None,
        "checkpoint_every": 6,
    },
    "steps_per_epoch and class_weight": {
        "steps_per_epoch": 7,
        "class_weight": {0: 1.0, 1: 2.0},
        "checkpoint_every": 5,
    },
    "a generator, within a pass": {"x": batches, "y": None, "batch_size": None, "checkpoint_every": 7},
    "a generator, between two passes": {"x": batches, "y": None, "batch_size": None},
    "a loop of Keras": {"make": of_class(OwnLoop)},
    "a fit() of its own, data in order": {"make": of_class(OwnFit), "x": generator, "y": None},
    "mirrored": {"strategy": tfdistr.mirrored(devices=["cpu:0"]), "checkpoint_every": 5},
}


# Slow: trains three times for each kind of run.
@pytest.mark.parametrize("name", mostly_slow(CASES, quick=QUICK))
def test_a_run_of_another_kind_goes_on(tmp_path, name):
    given = dict(CASES[name])
    remembers = Remembers() if given.pop("remembers", False) else None
    own = [remembers] if remembers else []
    full = train(tmp_path / "full", callbacks=own, **given)
    knows = vars(remembers).copy() if remembers else {}
    with pytest.raises(RuntimeError, match="the disk is full"):
        train(tmp_path / "run", callbacks=[*own, At(2, breaks)], **given)
    again = Remembers() if remembers else None
    fit = train(tmp_path / "run", callbacks=[again] if again else None, resume=True, **given)
    assert bits(fit) == bits(full)
    if again:
        assert again.drawn == knows["drawn"]
        assert again.sums.tolist() == knows["sums"].tolist()
        assert again.seen == knows["seen"]


@pytest.mark.slow(reason="trains three times for each kind of run")
def test_a_run_that_a_callback_has_stopped_stays_so(tmp_path):
    class Stops(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = epoch == 1

    full = train(tmp_path / "run", callbacks=[Stops()], checkpoint_every=1000)
    assert len(full.history["loss"]) == 2
    assert bits(train(tmp_path / "run", resume=True, checkpoint_every=1000)) == bits(full)


@pytest.mark.slow(reason="trains three times for each kind of run")
def test_a_complete_run_can_have_more_epochs(tmp_path):
    short = train(tmp_path / "run", epochs=2)
    assert bits(train(tmp_path / "run", epochs=2, resume=True)) == bits(short)
    longer = train(tmp_path / "run", resume=True)
    assert bits(longer) == bits(train(tmp_path / "other"))
    with pytest.raises(ArgumentError) as caught:
        train(tmp_path / "run", epochs=3, resume=True)
    assert caught.value.received == "epochs=3, where the checkpoint is at epoch 5, step 0"


def test_a_torn_checkpoint_costs_an_epoch_and_nothing_else(tmp_path, undisturbed, caplog):
    with pytest.raises(RuntimeError, match="the disk is full"):
        train(tmp_path / "run", callbacks=callbacks_with(tmp_path, At(3, breaks)), validation_data=(X, Y))
    newest = tmp_path / "run" / "checkpoints" / "000003-000000000.checkpoint"
    newest.write_bytes(newest.read_bytes()[:-100])
    fit = train(tmp_path / "run", callbacks=callbacks_with(tmp_path), validation_data=(X, Y), resume=True)
    assert bits(fit) == undisturbed[0]
    assert (tmp_path / "log.csv").read_text() == undisturbed[1]
    assert "it is torn" in caplog.text


@pytest.mark.filterwarnings("error::tfdistr.TfdistrWarning")
def test_a_run_that_resumes_with_other_kernels_warns(tmp_path, monkeypatch):
    train(tmp_path / "run", epochs=1)
    train(tmp_path / "run", epochs=2, resume=True)
    monkeypatch.setattr("tfdistr.training.train.describe_kernels", lambda: "0123456789abcdef Another CPU")
    with pytest.warns(tfdistr.TfdistrWarning, match=r"This process \(Another CPU\) rounds differently from"):
        train(tmp_path / "run", epochs=3, resume=True)


def test_resume_in_a_new_folder_begins_with_the_seed_of_the_first_run(tmp_path):
    full = train(tmp_path / "run", resume=True, seed=None)
    again = train(tmp_path / "run", resume=True, seed=None)
    assert again.params["seed"] == full.params["seed"]
    assert bits(again) == bits(full)


def test_a_process_that_is_told_to_end_saves_at_the_next_step(tmp_path, undisturbed):
    before = signal.getsignal(signal.SIGTERM)
    run = tmp_path / "run"
    given = {"validation_data": (X, Y), "checkpoint_every": 1000}
    told = At(1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(JobStoppedError) as caught:
        train(run, callbacks=callbacks_with(tmp_path, told), **given)
    assert signal.getsignal(signal.SIGTERM) is before
    epoch, step = positions(run)[-1]
    assert (1, 0) < (epoch, step) <= (2, 0)
    assert isinstance(caught.value, SystemExit)
    assert caught.value.code == 75
    assert str(caught.value).splitlines() == [
        f"The job was preempted (SIGTERM) and saved a checkpoint at epoch {epoch + 1}, step {step}.",
        f"Fix: Repeat the call with run_dir='{run}' and resume=True.",
    ]
    fit = train(run, callbacks=callbacks_with(tmp_path), resume=True, **given)
    assert bits(fit) == undisturbed[0]


ARGUMENTS = [
    ({"checkpoint_every": "step"},
     ["`checkpoint_every` must be a number of", "Received: 'step'",
      'Pass checkpoint_every="epoch", for example.']),
    ({"checkpoint_every": 5, "run_dir": None},
     ["`checkpoint_every` needs `run_dir`, the", "Received: no run_dir"]),
    ({"resume": True, "run_dir": None}, ["`resume` needs `run_dir`, the folder for", "Received: no run_dir"]),
    ({"failures": tfdistr.on_failure(min_workers=3), "cluster": describe_local_cluster(2)},
     ["`min_workers` must be at most the number", "Received: min_workers=3, and 2 workers",
      "Pass cluster=local_cluster(workers=4) and"]),
    ({"failures": tfdistr.on_failure(min_workers=1), "strategy": "parameter_server",
      "cluster": describe_local_cluster(2, ps=1)},
     ["`min_workers` is for the strategies", "Received: min_workers=1, and strategy='parameter_server'"]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "said"), ARGUMENTS)
def test_arguments_that_cannot_be_followed(tmp_path, given, said):
    run_dir = given.get("run_dir", tmp_path / "run")
    rest = {name: value for name, value in given.items() if name != "run_dir"}
    with pytest.raises(ArgumentError) as caught:
        train(run_dir, **{"checkpoint_every": None} | rest)
    assert_says(caught.value, said)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", [OwnFit, OwnLoop])
def test_models_that_have_only_checkpoints_of_epochs(tmp_path, kind):
    with pytest.raises(ArgumentError, match="Checkpoints need one device of each worker;") as caught:
        train(tmp_path / "run", of_class(kind), checkpoint_every=5)
    assert caught.value.received == "checkpoint_every=5, and a model that Keras's own loop trains"


def test_a_folder_with_a_run_needs_resume_and_one_with_anything_else_is_refused(tmp_path):
    train(tmp_path / "run", epochs=1)
    with pytest.raises(ArgumentError, match="`run_dir` must be a new or empty folder") as caught:
        train(tmp_path / "run")
    assert "or resume=True to resume the run in this one" in caught.value.fix
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letters").write_text("dear")
    with pytest.raises(ArgumentError, match="`resume` needs a run with checkpoints, or a new"):
        train(tmp_path / "other", resume=True)


def test_a_job_that_was_killed_before_it_had_begun_is_in_nobodys_way(tmp_path):
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    for name in ("run.json.partial", "lock-0a1b"):
        (run / name).write_text("{")
    train(run, resume=True)
    assert (run / "run.json").is_file()
    assert not (run / "run.json.partial").exists()


def test_a_cluster_without_a_worker():
    gpus = LocalCluster(workers=3, gpus=("0", "1", "2"))
    assert gpus.without(1, 2) == LocalCluster(workers=2, gpus=("0", "2"))
    assert gpus.without(1, 3) is None


def test_the_description_of_a_run_is_on_the_disk_before_its_first_checkpoint(tmp_path, monkeypatch):
    flushed: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        there = (tmp_path / "run" / "run.json").exists()
        flushed.append(f"{path.relative_to(tmp_path)}{', with run.json' if there else ''}")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    train(tmp_path / "run", epochs=1)
    first = next(place for place, path in enumerate(flushed) if "checkpoints" in path)
    assert flushed[:2] == ["run/run.json.partial", "run, with run.json"]
    assert first >= 2


def test_a_job_with_resume_says_where_it_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(**options: Any) -> str:
        train(tmp_path, resume=True, verbose=2, **options)
        return capsys.readouterr().out.splitlines()[0]

    assert said(epochs=1) == "There is no checkpoint: a new run begins."
    assert said(epochs=2) == "The run continues from epoch 2, step 0."
    complete = "This run is already complete: its result is returned, and nothing is trained."
    assert said(epochs=2) == complete
    assert said(epochs=2, cluster=describe_local_cluster(1)) == complete

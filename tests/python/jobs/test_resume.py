"""Checkpoints, exact resume and restarts in this process; test_recovery.py has workers."""

import os
from pathlib import Path
from typing import Any

import keras
import pytest
from refusals import assert_says
from resumed import bits, train

import tfdistr
from tfdistr.clusters.local.local_cluster import LocalCluster, describe_local_cluster
from tfdistr.errors import ArgumentError


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
    ({"failures": tfdistr.on_failure(max_restarts=3)},
     ["`max_restarts` needs `cluster`, whose workers", "Received: max_restarts=3, and no cluster"]),
    ({"keep_checkpoints": 5, "run_dir": None},
     ["`keep_checkpoints` needs checkpoints.", "Received: keep_checkpoints=5"]),
    *(({"keep_checkpoints": value}, ["`keep_checkpoints` must be"]) for value in (0, -1, 1.5, "all", None)),
]  # fmt: skip


@pytest.mark.parametrize(("given", "said"), ARGUMENTS)
def test_arguments_that_cannot_be_followed(tmp_path, given, said):
    run_dir = given.get("run_dir", tmp_path / "run")
    rest = {name: value for name, value in given.items() if name != "run_dir"}
    with pytest.raises(ArgumentError) as caught:
        train(run_dir, **{"checkpoint_every": None} | rest)
    assert_says(caught.value, said)
    assert not (tmp_path / "run").exists()


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

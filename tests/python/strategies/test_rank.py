"""The index of this process, the number of workers, and the chief: who is asked for them, in which order."""

import gc
import json
import os
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from clusters import run_well

import tfdistr
from tfdistr.errors import ClusterConfigError
from tfdistr.rendezvous.launcher_ranks import launcher_of

PLAN = tfdistr.tf_config(worker=["127.0.0.1:10001", "127.0.0.1:10002", "127.0.0.1:10003"])
SLURM = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "3"}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("SLURM_", "PMI_", "PMIX_", "OMPI_", "TF_CONFIG")):
            monkeypatch.delenv(name)
    monkeypatch.setattr("tfdistr.strategies.rank._own_strategy", [])


def place() -> tuple[Any, int, bool]:
    return tfdistr.worker_index(), tfdistr.num_workers(), tfdistr.is_chief()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PMI_RANK": "1", "PMI_SIZE": "3"}, (1, 3, False)),
        ({"PMI_RANK": "0", "PMI_SIZE": "3"}, (0, 3, True)),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, (0, 1, True)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2, False)),
        (SLURM | {"SLURM_STEP_ID": "0"}, (2, 3, False)),  # srun -n 3
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"}, (2, 4, False)),  # srun
        ({"SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"}, (0, 1, True)),
        (SLURM | {"SLURM_STEP_ID": "batch"}, (0, 1, True)),
        (SLURM | {"SLURM_STEP_ID": "0", "PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2, False)),  # srun --mpi=pmi2
        (SLURM | {"SLURM_STEP_ID": "0", "PMIX_RANK": "2"}, (2, 3, False)),  # srun --mpi=pmix
        (SLURM, (0, 1, True)),  # the shell of sbatch
        (SLURM | {"SLURM_STEP_ID": "4294967291"}, (0, 1, True)),
        (SLURM | {"SLURM_STEP_ID": "4294967290", "PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2, False)),
        ({"PMI_RANK": "1", "PMI_SIZE": "many"}, (0, 1, True)),
        ({"PMIX_RANK": "1"}, (0, 1, True)),  # of how many, nobody says
        ({"PMI_SIZE": "3"}, (0, 1, True)),
    ],
)
def test_a_rank_is_told_by_its_launcher(
    environment: dict[str, str], expected: tuple[int, int, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert place() == expected


def test_what_the_launcher_says_is_that_of_one_launcher():
    mpich = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "2"}
    assert launcher_of(mpich | SLURM | {"SLURM_STEP_ID": "0"}) == ("PMI_RANK", 1, 3, 2)
    assert launcher_of(SLURM | {"SLURM_STEP_ID": "0"}) == ("SLURM_PROCID", 2, 3, 0)
    assert launcher_of(SLURM) is None


def test_tf_config_is_asked_before_the_launcher(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    for index, config in enumerate(PLAN):
        monkeypatch.setenv("TF_CONFIG", config.to_json())
        assert place() == (index, 3, index == 0)
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert place() == (1, 2, False)
    monkeypatch.setenv("TF_CONFIG", "{")
    for ask in (tfdistr.worker_index, tfdistr.num_workers, tfdistr.is_chief):
        with pytest.raises(ClusterConfigError):
            ask()


def test_a_parameter_server_has_no_index_among_the_workers(monkeypatch):
    tasks = tfdistr.tf_config(chief="a:1", worker=["b:1", "c:1"], ps=["d:1"])
    found = {}
    for config in tasks:
        monkeypatch.setenv("TF_CONFIG", config.to_json())
        found[str(config.task)] = place()
    assert found == {
        "chief 0": (None, 2, True), "ps 0": (None, 2, False),
        "worker 0": (0, 2, False), "worker 1": (1, 2, False),
    }  # fmt: skip


def test_the_strategy_is_asked_first_in_its_scope_and_after_tf_config_elsewhere(monkeypatch):
    alone = tfdistr.make_strategy()
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("TF_CONFIG", "")
    assert place() == (0, 1, True)  # that of the strategy, which trains alone, though there is a launcher
    monkeypatch.setenv("TF_CONFIG", PLAN[2].to_json())
    assert place() == (2, 3, False)
    with alone.scope():
        assert place() == (0, 1, True)
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():  # which knows nothing of workers
        assert place() == (2, 3, False)
    monkeypatch.setenv("TF_CONFIG", "")
    del alone
    gc.collect()
    assert place() == (1, 2, False)  # it is gone


@pytest.mark.timeout(180)
def test_ranks_of_mpiexec_know_their_place_before_and_after_the_strategy(tmp_path: Path) -> None:
    run_well("place.py", 2, [str(tmp_path)], timeout=150, mpi=True, start_warm=False)
    for index in range(2):
        found = json.loads((tmp_path / f"{index}.json").read_text())
        assert found["before"] == found["after"] == found["in scope"] == [index, 2, index == 0]
        assert found["without tensorflow"]  # it knew its place before TensorFlow was there
        assert found["distribute"] == "no strategy, and 2 workers, from the strategy"


@pytest.mark.timeout(180)
def test_ranks_whose_strategy_is_not_by_mpi_train_alone(tmp_path: Path) -> None:
    run_well("place.py", 2, [str(tmp_path), "ring"], timeout=150, mpi=True)
    for index in range(2):
        found = json.loads((tmp_path / f"{index}.json").read_text())
        assert (found["before"], found["after"]) == ([index, 2, index == 0], [0, 1, True])
        assert found["distribute"] == "all rows"

"""MPI as what carries the collectives, for ranks that mpiexec has started."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from clusters import run_cluster

import tfdistr
from tfdistr.mpi import chooses_mpi, world

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What two ranks found, and how the job ended that one of them failed."""
    folder = tmp_path_factory.mktemp("ranks")
    (ended,) = run_cluster("mpi_rank.py", 2, [str(folder)], timeout=180, mpi=True)
    files = [folder / f"{index}.json" for index in range(2)]
    assert all(file.exists() for file in files), ended.output[-4000:]
    return [json.loads(file.read_text()) for file in files], ended


def test_the_ranks_are_the_workers(ranks):
    assert [found["workers"] for found in ranks[0]] == [[2, 0, True], [2, 1, False]]


def test_values_are_reduced_and_gathered(ranks):
    for index, found in enumerate(ranks[0]):
        assert found["sum"] == 3.0
        np.testing.assert_allclose(found["mean of unequal rows"], [2 / 3, 2 / 3], rtol=1e-6)
        assert found["gathered text"] == ["from 0", "from 1"]
        assert found["nest"] == [[1.0, 1.0], 1.5]
        assert found["replica"] == {
            "id": index, "half": 3.0, "bfloat": 3.0, "sparse": [[1.0, 1.0], [1.0, 1.0]],
            "gathered": [[0, 0], [1, 1], [1, 1]],
        }  # fmt: skip


def test_variables_start_with_the_values_of_the_chief(ranks):
    for found in ranks[0]:
        assert found["variables"] == [[0.0, 1.0], "of 0"]


def test_a_barrier_ends_when_not_all_come(ranks):
    chief, other = ranks[0]
    assert chief["barrier"].startswith("All 2 workers must come to the barrier 'alone' within 1 s.")
    assert "barrier" not in other


def test_a_rank_that_fails_is_named_and_ends_the_job(ranks):
    ended = ranks[1]
    assert ended.status != 0
    assert "\nValueError: the loss is green\n" in ended.output
    assert "AbortedError: tfdistr: failure of worker 1: ValueError: the loss is green" in ended.output


def test_distributed_fit_joins_the_ranks_and_gives_the_numbers_of_one_worker(tmp_path):
    cases = ["arrays", "function_of_context", "early_stopping", "fewer_examples_than_workers"]
    folders = [tmp_path / name for name in ("one", "rank-0", "rank-1", "rank-2")]
    for folder in folders:
        folder.mkdir()
    one, *of_ranks = ([str(folder), *cases] for folder in folders)
    for ended in run_cluster("joined.py", 1, one) + run_cluster("joined.py", 3, *of_ranks, mpi=True):
        assert ended.status == 0, ended.output[-3000:]
    for case in cases:
        with np.load(folders[0] / f"{case}.npz") as expected:
            for folder in folders[1:]:
                with np.load(folder / f"{case}.npz") as received:
                    assert int(received["workers"]) == 3
                    for name in set(expected.files) - {"workers"}:
                        np.testing.assert_allclose(received[name], expected[name], atol=1e-6)


def test_mpi_is_chosen_if_its_launcher_has_started_this_process(monkeypatch):
    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    assert not chooses_mpi("auto")
    assert chooses_mpi("mpi")
    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
        assert chooses_mpi("auto")
        assert not chooses_mpi("ring")
        monkeypatch.setenv(name, "1")
        assert not chooses_mpi("auto")
        monkeypatch.setenv(name, "2")
        described = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(described))
        assert not chooses_mpi("auto")  # the user has described another cluster
        monkeypatch.delenv("TF_CONFIG")
        monkeypatch.delenv(name)


def test_a_missing_mpi4py_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(tfdistr.ClusterStartError) as caught:
        world()
    assert str(caught.value).splitlines() == [
        'communication="mpi" needs mpi4py and an MPI library.',
        "Received: import of mpi4py halted; None in sys.modules",
        "Fix: pip install 'tfdistr[mpi]', or install mpi4py for the MPI library of your machine.",
    ]


def test_a_local_cluster_does_not_go_with_mpi():
    with pytest.raises(tfdistr.ArgumentError) as caught:
        tfdistr.distributed_fit(
            lambda: None, np.ones((2, 1)), cluster=tfdistr.local_cluster(2), communication="mpi"
        )
    assert str(caught.value).splitlines() == [
        'communication="mpi" is for processes that MPI\'s launcher has started.',
        'Received: communication="mpi", and a cluster of local_cluster()',
        "Fix: Leave `cluster` out and start the script with mpiexec -n 4.",
    ]

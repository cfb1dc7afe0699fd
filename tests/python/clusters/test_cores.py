"""Which cores each worker of a machine runs on."""

import json
import os
import sys

import pytest

import tfdistr
from tfdistr.clusters.resources import check_cores, neighbours_together, share_of, take_cores
from tfdistr.errors import ArgumentError
from tfdistr.utils.processes import usable_cores

CORES = usable_cores()


@pytest.fixture
def taken(monkeypatch):
    """Has this process take a share of the cores, and gives the threads that TensorFlow will have."""

    def take(index: int, workers: int, each: int | None, **options: bool) -> tuple[list[int], str, str]:
        for name, value in share_of(index, workers, each, **options).items():
            monkeypatch.setenv(name, value)
        for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        try:
            own = take_cores()
            assert sorted(os.sched_getaffinity(0)) == sorted(own)
            return own, os.environ["TF_NUM_INTRAOP_THREADS"], os.environ["TF_NUM_INTEROP_THREADS"]
        finally:
            for thread in os.listdir("/proc/self/task"):
                os.sched_setaffinity(int(thread), CORES)

    return take


def test_the_threads_of_a_core_are_neighbours(tmp_path):
    """A processor with two cores of two threads, as Linux counts them; and one that says nothing."""
    for core in range(4):
        topology = tmp_path / f"cpu{core}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text("0\n")
        (topology / "core_id").write_text(f"{core % 2}\n")
    assert neighbours_together([0, 1, 2, 3], tmp_path) == [0, 2, 1, 3]
    assert neighbours_together([3, 1, 0], tmp_path / "absent") == [0, 1, 3]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a process to cores")
class TestTake:
    def test_one_worker_has_all(self, taken):
        assert taken(0, 1, None) == (CORES, str(len(CORES)), str(len(CORES)))

    @pytest.mark.skipif(len(CORES) < 2, reason="there is one core")
    def test_workers_share_the_cores_fairly(self, taken):
        half = len(CORES) // 2
        shares = [taken(index, 2, None) for index in range(2)]
        assert [cores for cores, *_ in shares] == [CORES[:half], CORES[half : 2 * half]]
        assert {pool for _, *pools in shares for pool in pools} == {str(half)}

    def test_more_workers_than_cores_take_one_each_in_turn(self, taken):
        workers = 2 * len(CORES)
        assert [taken(index, workers, None)[0] for index in range(workers)] == [[core] for core in CORES * 2]

    def test_cores_to_which_slurm_has_bound_a_task_are_not_shared_again(self, monkeypatch):
        monkeypatch.setenv("SLURM_CPUS_ON_NODE", str(2 * len(CORES)))
        for name, value in share_of(1, 2, 2 * len(CORES), by_slurm=True).items():
            monkeypatch.setenv(name, value)
        assert take_cores() == CORES

    @pytest.mark.skipif(len(CORES) < 2, reason="there is one core")
    def test_cores_to_which_slurm_has_bound_nobody_are_shared(self, taken, monkeypatch):
        monkeypatch.setenv("SLURM_CPUS_ON_NODE", str(len(CORES)))
        assert taken(1, len(CORES), None, by_slurm=True)[0] == [CORES[1]]
        monkeypatch.setenv("SLURM_CPUS_ON_NODE", str(2 * len(CORES)))  # of an allocation around the job
        assert taken(1, len(CORES), None)[0] == [CORES[1]]

    def test_so_many_as_asked_for(self, taken):
        assert taken(len(CORES) - 1, len(CORES), 1) == ([CORES[-1]], "1", "1")

    def test_not_more_than_there_are(self, taken):
        with pytest.raises(ArgumentError, match="must be at most its usable cores"):
            taken(0, 2, len(CORES))


def test_threads_that_the_user_chose_stay(monkeypatch):
    monkeypatch.setenv("TFDISTR_CORES", "0 1 0")
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "7")
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "7")
    take_cores()
    assert os.environ["TF_NUM_INTRAOP_THREADS"] == "7"


def test_without_a_share_all_cores_are_left(monkeypatch):
    monkeypatch.delenv("TFDISTR_CORES", raising=False)
    assert take_cores() == CORES


def test_a_cluster_needs_as_many_cores():
    assert check_cores(2, None) is None
    assert tfdistr.local_cluster(1, cores_per_worker=len(CORES)).cores_per_worker == len(CORES)
    with pytest.raises(ArgumentError, match="`cores_per_worker` times the workers of a") as caught:
        tfdistr.local_cluster(2, cores_per_worker=len(CORES))
    assert caught.value.received == f"2 workers with {len(CORES)} each, and {len(CORES)} cores"


@pytest.mark.skipif(len(CORES) < 2, reason="there is one core")
@pytest.mark.parametrize("communication", ["ring", "mpi"])
def test_each_worker_runs_on_its_cores(tmp_path, communication):
    folder = str(tmp_path)

    def model():
        import keras
        import tensorflow as tf

        threads = map(int, os.listdir("/proc/self/task"))
        seen = {
            "cores": sorted(os.sched_getaffinity(0)),
            "of threads": sorted(set().union(*map(os.sched_getaffinity, threads))),
        }
        index = tf.distribute.get_strategy().worker_index
        with open(f"{folder}/{index}.json", "w") as file:
            json.dump(seen, file)
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    import numpy as np

    x = np.ones((8, 2), "float32")
    tfdistr.distributed_fit(
        model, x, x[:, :1], cluster=tfdistr.local_cluster(2, cores_per_worker=1), verbose=0,
        strategy=tfdistr.multi_worker_mirrored(communication=communication),
    )  # fmt: skip
    for index in range(2):
        seen = json.loads((tmp_path / f"{index}.json").read_text())
        assert seen["cores"] == seen["of threads"] == [CORES[index]]

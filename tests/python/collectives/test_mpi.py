"""Collectives over MPI, for ranks that mpiexec has started; more values: test_multi_worker_mirrored.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from clusters import NO_GPU, run_cluster

import tfdistr
from tfdistr.collectives.choice import chooses_mpi
from tfdistr.collectives.mpi.world import world

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
    for found in ranks[0]:
        assert found["large and small"]
        assert found["eager"]
        assert found["gathered text"] == ["from 0", "from 1"]
        assert found["kinds"] == [3.0, 3.0, [[1.0, 1.0], [1.0, 1.0]]]


def test_sums_leave_alone_what_they_are_made_of(ranks):
    assert [found["used elsewhere"] for found in ranks[0]] == [True, True]


def test_variables_start_with_the_values_of_the_chief(ranks):
    for found in ranks[0]:
        assert found["variables"] == [[0.0, 1.0], "of 0"]


def test_a_barrier_ends_when_not_all_come(ranks):
    chief, other = ranks[0]
    assert chief["barrier"].startswith("Not all 2 workers reached the barrier 'alone' within 1 s.")
    assert "barrier" not in other


def test_a_rank_that_waits_leaves_its_core_to_others():
    (ended,) = run_cluster("patient.py", 2, ["4"], timeout=180, mpi=True)
    assert ended.status == 0, ended.output
    assert float(ended.output.split("spent ")[1].split()[0]) < 2  # of four seconds


def test_a_rank_that_fails_is_named_and_ends_the_job(ranks):
    ended = ranks[1]
    assert ended.status != 0
    assert "\nValueError: the loss is green\n" in ended.output
    assert "AbortedError: tfdistr: failure of worker 1: ValueError: the loss is green" in ended.output


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
    with pytest.raises(tfdistr.ClusterStartError, match='communication="mpi" needs mpi4py and') as caught:
        world(60)
    assert caught.value.received == "import of mpi4py halted; None in sys.modules"


def start_rank(**environment: str) -> subprocess.CompletedProcess[str]:
    """Join MPI in a process to which the environment says that it is a rank."""
    code = "from tfdistr.collectives.mpi.world import world; print(world(60).Get_size())"
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("environment", "received"),
    [
        ({"PMI_SIZE": "3", "PMI_RANK": "0"}, "1 rank in the MPI of this process, which is MPICH"),
        ({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"}, "MPICH"),
        (
            {"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "3"},
            "1 rank in the MPI of this process, which is MPICH",
        ),
    ],
)
def test_ranks_that_are_alone_by_accident_are_told(environment: dict[str, str], received: str) -> None:
    lines = start_rank(**environment).stderr.splitlines()[-3:]
    assert lines[0].endswith(
        "ClusterStartError: The 3 processes that the launcher started are not the ranks of one MPI job."
    )
    assert lines[1].startswith(f"Received: {received} Version")
    assert lines[1].endswith("Open MPI's launcher has started") == ("OMPI_COMM_WORLD_SIZE" in environment)
    assert lines[2].startswith("Fix: Use the mpiexec of that library")


def test_a_process_without_a_launcher_is_alone_rightly() -> None:
    assert start_rank().stdout == "1\n"
    assert start_rank(SLURM_PROCID="0", SLURM_NTASKS="3").stdout == "1\n"  # the shell of sbatch


@pytest.mark.parametrize(("more", "chosen"), [({}, False), ({"PMI_RANK": "0", "PMI_SIZE": "3"}, True)])
def test_a_plain_srun_starts_no_ranks_of_mpi(monkeypatch, more, chosen):
    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"} | more).items():
        monkeypatch.setenv(name, value)
    assert chooses_mpi("auto") is chosen


def model():
    import keras

    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


def fit(workers, **options):
    return tfdistr.distributed_fit(
        model, tfdistr.load_dataset("digits"), batch_size=64, steps_per_epoch=22, seed=1, verbose=0,
        cluster=tfdistr.local_cluster(workers, env=NO_GPU), **options,
    )  # fmt: skip


def test_local_workers_train_by_mpi_with_the_numbers_of_one(tmp_path):
    def look(epoch, logs):
        # The sockets of worker 1 on which it listens: TensorFlow's server would, on all interfaces.
        if (tfdistr.worker_index(), epoch) != (1, 1):
            return
        names = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd.isdigit()
                 and os.path.lexists(f"/proc/self/fd/{fd}")]  # fmt: skip
        tables = [Path(f"/proc/self/net/{kind}").read_text().splitlines() for kind in ("tcp", "tcp6")]
        rows = [line.split() for table in tables for line in table]
        own = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in names]
        (tmp_path / "listening").write_text(" ".join(own))

    def callbacks():
        import keras

        return [keras.callbacks.LambdaCallback(on_epoch_end=look)]

    several = fit(2, epochs=3, callbacks=callbacks, run_dir=tmp_path / "run")
    one = fit(1, epochs=3)
    assert (several.params["communication"], one.params["communication"]) == ("mpi", "none")
    np.testing.assert_allclose(several.history["loss"], one.history["loss"], rtol=1e-6)
    assert [(worker["status"], worker["exit_code"]) for worker in several.workers] == [("done", 0)] * 2
    logs = [(tmp_path / "run" / "logs" / f"worker-{index}.log").read_text() for index in range(2)]
    reason = "tfdistr INFO: communication: mpi, because all workers have MPICH Version: "
    assert [log.count(reason) for log in logs] == [1, 0]
    assert (tmp_path / "listening").read_text() == ""
    log = Path(one.workers[0]["log"]).read_text()
    assert "communication: left to the workers, because one worker has none to talk to" in log

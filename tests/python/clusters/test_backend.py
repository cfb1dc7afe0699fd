"""What carries the collectives of a cluster that is to be started, and why."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfdistr
from tfdistr.clusters import backend
from tfdistr.clusters.local.local_cluster import describe_local_cluster as local_cluster
from tfdistr.errors import ArgumentError, ClusterStartError
from tfdistr.utils import gpus
from tfdistr.utils.gpus import visible_gpus

pytestmark = pytest.mark.timeout(120)

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def chosen(workers: int, communication: str, **env: str) -> str:
    return str(local_cluster(workers, env=NO_GPU | env).backend(communication))


def test_what_is_chosen() -> None:
    assert chosen(2, "auto") == (
        "communication: left to the workers, because they find out what they have when they meet"
    )
    assert chosen(2, "mpi") == "communication: mpi, because the caller asked for it"
    assert chosen(2, "ring") == "communication: ring, because the caller asked for it"
    assert chosen(2, "nccl") == "communication: nccl, because the caller asked for it"
    alone = "communication: left to the workers, because one worker has none to talk to"
    assert chosen(1, "auto") == chosen(1, "mpi") == alone


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which NVIDIA's driver lists its GPUs; there are none yet."""
    monkeypatch.setattr(gpus, "_DRIVER", tmp_path / "gpus")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    gpus._listed_by.cache_clear()
    return tmp_path / "gpus"


def test_a_gpu_that_the_workers_see(gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not visible_gpus({})
    (gpu / "0000:01:00.0").mkdir(parents=True)
    assert visible_gpus({})
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0"}) == ("0",)
    assert not visible_gpus({"CUDA_VISIBLE_DEVICES": ""})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert not visible_gpus({})
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1"})  # the cluster's word counts


SLICES = """\
GPU 0: NVIDIA A100 (UUID: GPU-1)
  MIG 3g.20gb     Device  0: (UUID: MIG-a)
  MIG 3g.20gb     Device  1: (UUID: MIG-b)
GPU 1: NVIDIA A100 (UUID: GPU-2)
GPU 2: NVIDIA A100 (UUID: GPU-3)
  MIG 7g.40gb     Device  0: (UUID: MIG-c)
"""


def test_the_slices_of_a_card(gpu: Path) -> None:
    program = gpu.with_name("nvidia-smi")
    program.write_text(f"#!/bin/sh\nwhile IFS= read -r line; do echo \"$line\"; done <<'END'\n{SLICES}END\n")
    program.chmod(0o700)
    assert visible_gpus({}) == ("MIG-a", "MIG-b", "1", "MIG-c")
    cluster = local_cluster(gpus_per_worker=1, env={"CUDA_VISIBLE_DEVICES": "MIG-b,MIG-c"})
    assert [cluster.environment(index)["CUDA_VISIBLE_DEVICES"] for index in range(2)] == ["MIG-b", "MIG-c"]
    with pytest.raises(ArgumentError) as caught:
        local_cluster(1, gpus_per_worker=2, env={"CUDA_VISIBLE_DEVICES": "MIG-b,MIG-c"})
    assert str(caught.value).splitlines() == [
        "A worker can use one MIG slice: CUDA shows a process no more of them.",
        "Received: gpus_per_worker=2, and the GPUs MIG-b, MIG-c",
        "Fix: Pass gpus_per_worker=1, or make larger slices.",
    ]


def test_workers_take_the_memory_of_a_gpu_as_they_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "TF_FORCE_GPU_ALLOW_GROWTH"
    monkeypatch.delenv(name, raising=False)
    assert [local_cluster(2).environment(index)[name] for index in range(2)] == ["true"] * 2
    assert tfdistr.ssh_cluster(["a"]).environments()[0][name] == "true"
    assert local_cluster(2, env={name: "false"}).environment(0)[name] == "false"
    monkeypatch.setenv(name, "false")
    assert name not in local_cluster(2).environment(0)


def test_nccl_needs_a_gpu_for_each_worker(gpu: Path) -> None:
    (gpu / "0000:01:00.0").mkdir(parents=True)
    with pytest.raises(ArgumentError, match='communication="nccl" needs a GPU for each') as caught:
        tfdistr.distributed_fit(
            lambda: None,
            np.ones((2, 1)),
            cluster=local_cluster(2),
            strategy=tfdistr.multi_worker_mirrored(communication="nccl"),
        )
    assert caught.value.received == "2 workers, which share GPU 0"
    for each in (local_cluster(gpus_per_worker=1), local_cluster(2, env=NO_GPU), local_cluster(1)):
        assert each.backend("nccl").communication == "nccl"
    (gpu / "0000:02:00.0").mkdir()
    assert local_cluster(2).backend("nccl").communication == "nccl"
    with pytest.raises(ArgumentError, match="3 workers, which share GPU 0"):
        local_cluster(3).backend("nccl")


def test_the_gpus_of_each_worker(gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (gpu / f"0000:0{number}:00.0").mkdir(parents=True)

    def seen(**options: Any) -> list[str]:
        cluster = local_cluster(**options)
        return [cluster.environment(index)["CUDA_VISIBLE_DEVICES"] for index in range(cluster.workers)]

    assert seen(gpus_per_worker=1, env={"OTHER": "1"}) == ["0", "1", "2", "3", "4"]
    assert seen(gpus_per_worker=2) == ["0,1", "2,3"]
    assert seen(workers=1, gpus_per_worker=3) == ["0,1,2"]
    assert seen(gpus_per_worker=0) == ["-1", "-1"]
    assert seen(workers=3) == ["0", "1", "2"]
    assert seen(workers=6) == ["0", "1", "2", "3", "4", "0"]
    assert seen(workers=2, env={"CUDA_VISIBLE_DEVICES": "4,2,1"}) == ["4", "2"]
    assert "CUDA_VISIBLE_DEVICES" not in local_cluster(1).environment(0)
    left = local_cluster((1, 2), gpus_per_worker=2).without(0, 1)
    assert left is not None
    assert left.environment(0)["CUDA_VISIBLE_DEVICES"] == "2,3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-7")
    assert seen(gpus_per_worker=1) == ["2", "GPU-7"]
    assert seen(gpus_per_worker=1, env={"CUDA_VISIBLE_DEVICES": "1"}) == ["1"]


@pytest.mark.parametrize(
    ("there", "arguments", "received"),
    [
        (0, {"gpus_per_worker": 1}, "1 worker with 1 each, and no visible GPUs"),
        (1, {"gpus_per_worker": 2}, "1 worker with 2 each, and 1 visible GPU"),
        (3, {"workers": 2, "gpus_per_worker": 2}, "2 workers with 2 each, and 3 visible GPUs"),
        (3, {"workers": (1, 4), "gpus_per_worker": 1}, "4 workers with 1 each, and 3 visible GPUs"),
        (3, {"gpus_per_worker": 2, "env": {"CUDA_VISIBLE_DEVICES": "1"}},
         "1 worker with 2 each, and 1 visible GPU"),
    ],
)  # fmt: skip
def test_too_few_gpus(there: int, arguments: dict[str, Any], received: str, gpu: Path) -> None:
    for number in range(there):
        (gpu / f"0000:0{number}:00.0").mkdir(parents=True)
    with pytest.raises(ArgumentError, match="`gpus_per_worker` times the workers of a machine") as caught:
        tfdistr.local_cluster(**arguments)
    assert caught.value.received == f"{received} (nvidia-smi, CUDA_VISIBLE_DEVICES)"


INSTALL = "Fix: pip install mpi4py mpich, or set MPI4PY_LIBMPI to the library of your machine's MPI."


def refused() -> list[str]:
    with pytest.raises(ClusterStartError) as caught:
        tfdistr.distributed_fit(
            lambda: None, np.ones((2, 1)), cluster=local_cluster(2, env=NO_GPU),
            strategy=tfdistr.multi_worker_mirrored(communication="mpi"),
            run_dir="/nowhere/to/be/made",
        )  # fmt: skip
    return str(caught.value).splitlines()


@pytest.fixture
def fresh() -> Any:
    """What was found out about this Python's MPI is forgotten, before and after."""
    backend._library.cache_clear()
    yield
    backend._library.cache_clear()


def test_no_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert refused() == [
        'communication="mpi" needs mpi4py and an MPI library.', "Received: no mpi4py", INSTALL
    ]  # fmt: skip
    assert chosen(2, "auto").startswith("communication: left to the workers")


def test_no_library(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nowhere/libmpi.so")
    rule, received, fix = refused()
    assert (rule, fix) == ('communication="mpi" needs mpi4py and an MPI library.', INSTALL)
    assert received.startswith("Received: mpi4py, but no library: /nowhere/libmpi.so: cannot open shared")


def test_another_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_library", lambda python: ("Open MPI v5.0.8", None))
    assert refused() == [
        'communication="mpi" needs mpi4py and an MPI library.',
        "Received: Open MPI v5.0.8; only MPICH starts without its launcher",
        INSTALL,
    ]


def test_the_choice_does_not_start_mpi() -> None:
    code = (
        "import sys; from tfdistr.clusters.local.local_cluster import LocalCluster; "
        "LocalCluster(workers=2).backend('mpi'); "
        "sys.exit('mpi4py' in sys.modules or 'tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0

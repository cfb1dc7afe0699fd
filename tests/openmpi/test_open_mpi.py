"""Jobs by Open MPI, whose launcher, or Slurm with PMIx, has to start the workers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slurm_lab
from small_job import train

import tfdistr
from tfdistr.errors import ClusterStartError

pytestmark = pytest.mark.timeout(300)


PROGRAM = """
import json, sys
sys.path.insert(0, {folder!r})
import tfdistr
from small_job import train

fit = train({options})
print(json.dumps([fit.params["communication"], fit.history["loss"]]), flush=True)
"""


def assert_printed(ended: subprocess.CompletedProcess[str], ranks: int, one: Any) -> None:
    """So many ranks have trained over MPI, with the numbers of one worker."""
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("[")]
    assert [communication for communication, _ in results] == ["mpi"] * ranks
    for _, losses in results:
        np.testing.assert_allclose(losses, one.history["loss"], atol=1e-6)


def test_its_launcher_starts_a_script(one: Any, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.format(folder=str(Path(__file__).parent), options=""))
    mpirun = [str(Path(sys.executable).with_name("mpirun")), "--allow-run-as-root", "--oversubscribe"]
    ended = subprocess.run(
        [*mpirun, "--bind-to", "none", "-n", "3", sys.executable, str(program)], cwd=tmp_path, text=True,
        capture_output=True, timeout=200,
    )  # fmt: skip
    assert_printed(ended, 3, one)


def test_workers_without_its_launcher_use_the_ring(one: Any, tmp_path: Path) -> None:
    fit = train(cluster=tfdistr.local_cluster(2), run_dir=tmp_path / "run")
    assert fit.params["communication"] == "ring"
    np.testing.assert_allclose(fit.history["loss"], one.history["loss"], atol=1e-6)
    log = (tmp_path / "run" / "logs" / "worker-0.log").read_text()
    assert "only MPICH starts without its launcher" in log


def test_workers_that_must_use_it_need_its_launcher(tmp_path: Path) -> None:
    with pytest.raises(ClusterStartError, match="only MPICH starts without its launcher"):
        train(cluster=tfdistr.local_cluster(2), strategy=tfdistr.multi_worker_mirrored(communication="mpi"))


# The nodes are one machine, where interfaces of the network come and go with other tests.
BY_LOOPBACK = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "lo"}


@pytest.fixture(scope="module")
def pmix(lab: slurm_lab.Lab) -> slurm_lab.Lab:
    """A Slurm that can start ranks by PMIx on several nodes."""
    if not lab.mounts:
        pytest.skip("two nodes of this machine need mounts of their own for PMIx")
    command = ["srun", "--mpi=pmix", "true"]
    said = subprocess.run(command, env=os.environ | lab.env, capture_output=True, text=True, timeout=60)
    if "can not load PMIx library" in said.stderr:
        pytest.skip("Slurm has no PMIx (tools/setup-slurm.sh installs libpmix-dev)")
    return lab


BY_SLURM = (
    "cluster=tfdistr.slurm_cluster(nodes=2, workers_per_host=1), "
    'strategy=tfdistr.multi_worker_mirrored(communication="mpi")'
)


@pytest.mark.parametrize(
    ("start", "options", "printed"),
    [(["srun", "--mpi=pmix", "-N2", "-n2"], "", 2), (["salloc", "--quiet", "-N2", "-n2"], BY_SLURM, 1)],
    ids=["srun", "allocation"],
)
def test_ranks_of_slurm_by_pmix(
    pmix: slurm_lab.Lab, one: Any, tmp_path: Path, start: list[str], options: str, printed: int
) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.format(folder=str(Path(__file__).parent), options=options))
    ended = subprocess.run(
        [*start, sys.executable, str(program)], cwd=tmp_path, text=True, capture_output=True,
        env=os.environ | pmix.env | BY_LOOPBACK, timeout=200,
    )  # fmt: skip
    assert_printed(ended, printed, one)

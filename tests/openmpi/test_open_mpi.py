"""Jobs by Open MPI: on this machine, on hosts, and by Slurm with PMIx."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slurm_lab
from small_job import train

import tfdistr
from tfdistr.errors import WorkerFailedError

pytestmark = pytest.mark.timeout(300)


def assert_equal(one: Any, other: Any) -> None:
    assert other.params["communication"] == "mpi"
    np.testing.assert_allclose(other.history["loss"], one.history["loss"], atol=1e-6)
    for own, weights in zip(one.model.get_weights(), other.model.get_weights(), strict=True):
        np.testing.assert_allclose(weights, own, atol=1e-6)


# --- This machine


def test_warm_workers_train_as_one(one: Any) -> None:
    assert_equal(one, train(cluster=tfdistr.local_cluster(3, warm=True), communication="mpi"))


def test_cold_virtual_workers_have_the_same_bits() -> None:
    one = train(virtual_workers=3, cluster=tfdistr.local_cluster(1))
    other = train(virtual_workers=3, cluster=tfdistr.local_cluster(3, warm=False), communication="mpi")
    assert other.params["communication"] == "mpi"
    assert other.history == one.history
    for own, weights in zip(one.model.get_weights(), other.model.get_weights(), strict=True):
        np.testing.assert_array_equal(weights, own)


def test_an_error_of_a_worker_is_that_of_the_job() -> None:
    def callbacks() -> list[Any]:
        import keras

        import tfdistr

        def fail(epoch: int, logs: Any) -> None:
            if tfdistr.worker_index() == 1:
                raise ValueError("bad loss")

        return [keras.callbacks.LambdaCallback(on_epoch_end=fail)]

    with pytest.raises(WorkerFailedError, match=r"Worker 1 of 2 on .* failed: ValueError: bad loss"):
        train(cluster=tfdistr.local_cluster(2), communication="mpi", callbacks=callbacks)


def test_a_killed_worker_is_named_and_replaced(one: Any, tmp_path: Path) -> None:
    mark = str(tmp_path / "killed")

    def callbacks() -> list[Any]:
        import os
        import pathlib
        import signal

        import keras

        import tfdistr

        def kill(epoch: int, logs: Any) -> None:
            if epoch == 2 and tfdistr.worker_index() == 1 and not os.path.exists(mark):
                pathlib.Path(mark).touch()
                os.kill(os.getpid(), signal.SIGKILL)

        return [keras.callbacks.LambdaCallback(on_epoch_begin=kill)]

    given = {"cluster": tfdistr.local_cluster(2), "communication": "mpi", "callbacks": callbacks}
    with pytest.raises(WorkerFailedError, match=r"Worker 1 of 2 on .* was killed by SIGKILL") as caught:
        train(**given)
    assert caught.value.exit_code == -signal.SIGKILL
    Path(mark).unlink()
    fit = train(**given, checkpoint_every="epoch", max_restarts=1, run_dir=tmp_path / "run")
    assert Path(mark).exists()
    assert_equal(one, fit)


# --- Hosts


def test_workers_on_two_hosts(net: Any, one: Any, tmp_path: Path) -> None:
    cluster = tfdistr.mpi_cluster(["a", "b"], ssh=net.ssh)
    fit = train(cluster=cluster, communication="mpi", run_dir=tmp_path / "run")
    assert_equal(one, fit)


# --- Slurm

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


PROGRAM = """
import json, sys
sys.path.insert(0, {folder!r})
import tfdistr
from small_job import train

fit = train({options})
print(json.dumps([fit.params["communication"], fit.history["loss"]]), flush=True)
"""
BY_SLURM = 'cluster=tfdistr.slurm_cluster(nodes=2, tasks_per_node=1), communication="mpi"'


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
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("[")]
    assert len(results) == printed
    for communication, losses in results:
        assert communication == "mpi"
        np.testing.assert_allclose(losses, one.history["loss"], atol=1e-6)

"""Choosing the backend of the collectives of a cluster, as far as its launcher can choose it.

Most workers choose for themselves when they meet: they know whether all have the same MPI; see ``mpi_join``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import attrs

from tfdistr.clusters.any_cluster import AnyCluster
from tfdistr.clusters.cluster import Cluster
from tfdistr.clusters.local.cluster import LocalCluster
from tfdistr.clusters.ray.cluster import RayCluster
from tfdistr.clusters.slurm.cluster import SlurmCluster
from tfdistr.clusters.slurm.programs import has_mpi4py, mpi_of_srun
from tfdistr.clusters.ssh.cluster import SshCluster
from tfdistr.collectives.mpi.world import PRINT_LIBRARY, no_mpi
from tfdistr.errors import ArgumentError, ClusterStartError
from tfdistr.utils.disk import BEFORE_START, writing


@dataclass(frozen=True)
class Backend:
    """The backend of the collectives.

    Args:
        communication: "mpi", "ring", "nccl", or "auto", which leaves the choice to the workers.
        cluster: The cluster that starts the workers.
        reason: Why this backend was chosen.
    """

    communication: str
    cluster: Cluster
    reason: str

    def __str__(self) -> str:
        name = "left to the workers" if self.communication == "auto" else self.communication
        return f"communication: {name}, because {self.reason}"


def choose_backend(cluster: AnyCluster, communication: str) -> Backend:
    """Choose the backend of ``cluster`` for the ``communication`` that the user has passed.

    Raises:
        ArgumentError: The cluster is an `SshCluster` with tunnels, and ``communication`` is "mpi". Or
            ``communication`` is "nccl", and local workers share a GPU.
        ClusterStartError: Ray is missing, or the allocation of Slurm is too small, or ``communication`` is
            "mpi", and there is none here that the workers can use.
    """
    if isinstance(cluster, SlurmCluster | RayCluster):
        cluster.check()
    if isinstance(cluster, SshCluster) and cluster.tunnels and communication in ("auto", "mpi"):
        return _by_tunnels(cluster, communication)
    if cluster.workers == 1 and communication in ("auto", "mpi"):
        return Backend("auto", cluster, "one worker has none to talk to")
    if communication == "auto":
        return Backend("auto", cluster, "they find out what they have when they meet")
    if isinstance(cluster, SlurmCluster) and communication == "mpi":
        return _by_srun(cluster)
    if isinstance(cluster, LocalCluster) and communication == "mpi":
        _check_mpich()
    if isinstance(cluster, LocalCluster) and communication == "nccl" and (shared := cluster.shared_gpus()):
        raise ArgumentError(
            'communication="nccl" needs a GPU for each worker.',
            received=f"{cluster.workers} workers, which all see GPU {', '.join(shared)}",
            fix='Pass cluster=local_cluster(workers="gpus"), or communication="ring".',
        )
    return Backend(communication, cluster, "the caller asked for it")


def _by_tunnels(cluster: SshCluster, communication: str) -> Backend:
    if communication == "mpi":
        raise ArgumentError(
            'communication="mpi" needs connections from host to host, which ssh tunnels do not carry.',
            received="ssh_cluster() with tunnels=True",
            fix='Pass communication="ring", or tunnels=False if the hosts can connect to each other.',
        )
    return Backend("ring", cluster, "ssh tunnels do not carry MPI")


def _by_srun(cluster: SlurmCluster) -> Backend:
    """Have srun make the ranks if the MPI is another than MPICH, which needs no launcher."""
    library = _mpi_library()
    if "MPICH" in library:
        return Backend("mpi", cluster, "the caller asked for it")
    option, why = mpi_of_srun(library, len(cluster.counts))
    if option is None:
        raise ClusterStartError(
            'communication="mpi" needs an MPI library that mpi4py and srun can use.',
            received=why,
            fix='Pass communication="ring", or install mpi4py with an MPI library that Slurm knows '
            "(srun --mpi=list).",
        )
    return Backend("mpi", attrs.evolve(cluster, mpi=option), "the caller asked for it")


def _check_mpich() -> None:
    """Check that workers of this machine will find MPICH, before they are started."""
    library = _mpi_library()
    if "MPICH" not in library:
        raise no_mpi(f"{library}; only MPICH starts without its launcher")


def _mpi_library() -> str:
    """The MPI library of this Python."""
    library, error = _library(sys.executable) if has_mpi4py() else ("", None)
    if error is not None:
        raise no_mpi(f"mpi4py, but no library: {error}")
    if not library:
        raise no_mpi("no mpi4py")
    return library


def backend_path(run_dir: str | os.PathLike[str]) -> Path:
    """The file of the run directory with the backend and the reason for it."""
    return Path(run_dir) / "backend.txt"


def write_backend(backend: Backend, run_dir: Path) -> None:
    """Write what carries the gradients, and why, for the log of the chief.

    Raises:
        CheckpointError: The system refuses to write it.
    """
    path = backend_path(run_dir)
    with writing(path, fix=BEFORE_START):
        path.write_text(str(backend))


@lru_cache(maxsize=2)
def _library(python: str) -> tuple[str, str | None]:
    """The first line of the version text of the MPI library, and the error if it cannot be loaded."""
    try:
        ended = subprocess.run([python, "-c", PRINT_LIBRARY], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    said = ended.stdout.strip().splitlines()
    if ended.returncode == 0 and said:
        return said[0], None
    return "", (ended.stderr.strip().splitlines() or ["it says nothing"])[-1]

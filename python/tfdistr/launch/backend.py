"""Choosing the backend of the collectives of a cluster: MPI, or TensorFlow's own collectives."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import attrs

from tfdistr._utils.disk import BEFORE_START, writing
from tfdistr.communication.mpi_world import PRINT_LIBRARY, no_mpi
from tfdistr.errors import ArgumentError, ClusterStartError
from tfdistr.launch.any_cluster import AnyCluster
from tfdistr.launch.cluster import Cluster
from tfdistr.launch.gpus import visible_gpus
from tfdistr.launch.mpi_cluster import LocalMpi, MpiCluster
from tfdistr.launch.mpiexec import command_line, family, find_mpiexec, no_launcher, version_of
from tfdistr.launch.ray_cluster import RayCluster
from tfdistr.launch.slurm_cluster import SlurmCluster
from tfdistr.launch.slurm_programs import has_mpi4py, mpi_of_srun
from tfdistr.launch.ssh_cluster import SshCluster


@dataclass(frozen=True)
class Backend:
    """The backend of the collectives.

    Args:
        communication: "mpi", "ring", "nccl", or "auto", which leaves the choice to TensorFlow.
        cluster: The cluster that starts the workers.
        reason: Why this backend was chosen.
    """

    communication: str
    cluster: Cluster
    reason: str

    def __str__(self) -> str:
        name = "left to TensorFlow" if self.communication == "auto" else self.communication
        return f"communication: {name}, because {self.reason}"


def choose_backend(cluster: AnyCluster, communication: str) -> Backend:
    """Choose the backend of ``cluster`` for the ``communication`` that the user has passed.

    "auto" chooses MPI if mpi4py, its library and mpiexec are there, and the workers see no GPU: NCCL is
    faster between GPUs.

    Raises:
        ArgumentError: The cluster is an `MpiCluster`, and ``communication`` is neither "auto" nor "mpi". Or
            it is an `SshCluster` with tunnels, and ``communication`` is "mpi". Or ``communication`` is
            "nccl", and local workers share a GPU.
        ClusterStartError: MPI is needed, and is not there, or Ray; or the allocation of Slurm is too small.
    """
    if isinstance(cluster, SlurmCluster):
        return _by_slurm(cluster, communication)
    if isinstance(cluster, MpiCluster):
        return _by_mpiexec(cluster, communication)
    if isinstance(cluster, SshCluster):
        return _by_ssh(cluster, communication)
    if isinstance(cluster, RayCluster):
        return _by_ray(cluster, communication)
    if cluster.workers == 1 and communication in ("auto", "mpi"):
        return Backend("auto", cluster, "one worker has none to talk to")
    if communication == "mpi":
        _check_mpi()
    elif communication == "auto":
        if cluster.gpus or visible_gpus(cluster.env or {}):
            return Backend("auto", cluster, "the workers see a GPU")
        try:
            _check_mpi()
        except ClusterStartError as error:
            return Backend("auto", cluster, f"MPI cannot be used here: {error.received}")
    else:
        if communication == "nccl" and (shared := cluster.shared_gpus()):
            raise ArgumentError(
                'communication="nccl" needs a GPU for each worker.',
                received=f"{cluster.workers} workers, which all see GPU {', '.join(shared)}",
                fix='Pass cluster=local_cluster(workers="gpus"), or communication="ring".',
            )
        return Backend(communication, cluster, "the caller asked for it")
    asked = communication == "mpi"
    reason = "the caller asked for it" if asked else "MPI is here, and the workers see no GPU"
    return Backend("mpi", LocalMpi(cluster), reason)


def _by_mpiexec(cluster: MpiCluster, communication: str) -> Backend:
    if communication not in ("auto", "mpi"):
        raise ArgumentError(
            "The workers of mpi_cluster() communicate by MPI.",
            received=f"communication={communication!r}",
            fix='Pass communication="mpi", or leave it out.',
        )
    _check_mpi()
    return Backend("mpi", cluster, "mpiexec starts the workers")


def _by_ssh(cluster: SshCluster, communication: str) -> Backend:
    if communication == "mpi" and cluster.tunnels:
        raise ArgumentError(
            'communication="mpi" needs connections from host to host, which ssh tunnels do not carry.',
            received="ssh_cluster() with tunnels=True",
            fix='Pass communication="ring", or tunnels=False if the hosts can connect to each other.',
        )
    return _without_launcher(cluster, communication, "ssh starts the workers")


def _by_ray(cluster: RayCluster, communication: str) -> Backend:
    cluster.check()
    return _without_launcher(cluster, communication, "actors of Ray run the workers")


def _without_launcher(cluster: SshCluster | RayCluster, communication: str, reason: str) -> Backend:
    """The backend of workers that meet by TF_CONFIG; see ``mpi_join`` for how they become ranks of MPI."""
    if communication == "mpi":
        return Backend(communication, cluster, "the caller asked for it")
    return Backend(communication, cluster, reason)


def _by_slurm(cluster: SlurmCluster, communication: str) -> Backend:
    cluster.check()
    if cluster.workers == 1 and communication in ("auto", "mpi"):
        return Backend("auto", cluster, "one worker has none to talk to")
    if communication == "auto":
        # MPICH 5.0 and pmi2 of Slurm 22.05: MPI_Init fails often in a process that has imported TensorFlow.
        # Slurm prints "mpi/pmi2: value not properly terminated in client request".
        return Backend("auto", cluster, "srun starts the workers")
    if communication != "mpi":
        return Backend(communication, cluster, "the caller asked for it")
    library, error = _library(sys.executable) if has_mpi4py() else ("", "no mpi4py")
    option, why = (None, error) if error is not None else mpi_of_srun(library, len(cluster.counts))
    if option is None:
        raise ClusterStartError(
            'communication="mpi" needs an MPI library that mpi4py and srun can use.',
            received=why,
            fix='Pass communication="ring", or install mpi4py with an MPI library that Slurm knows '
            "(srun --mpi=list).",
        )
    return Backend("mpi", attrs.evolve(cluster, mpi=option), "the caller asked for it")


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


def has_mpi() -> bool:
    """Whether mpi4py, its library and the launcher of that library are here."""
    try:
        _check_mpi()
    except ClusterStartError:
        return False
    return True


def _check_mpi() -> None:
    """Check that mpi4py, its library and the launcher of that library are there."""
    received = None
    if find_spec("mpi4py") is None:
        received = "no mpi4py"
    else:
        library, error = _library(sys.executable)
        if error is not None:
            received = f"mpi4py, but no library: {error}"
    if received is not None:
        raise no_mpi(received)
    mpiexec = find_mpiexec()
    if mpiexec is None:
        raise no_launcher()
    command_line(mpiexec, version_of(mpiexec), 1)  # refuses an unknown launcher
    launcher = family(version_of(mpiexec))
    if launcher != _family_of_library(library):
        raise ClusterStartError(
            "mpiexec must be that of the MPI library which mpi4py uses: else each worker is alone.",
            received=f"{mpiexec} of {_NAMES[launcher or 'mpich']}, and the library {library}",
            fix="Put the mpiexec of that library first on PATH, or pip install 'tfdistr[mpi]' into an "
            "environment of its own.",
        )


_NAMES = {"mpich": "MPICH", "openmpi": "Open MPI"}


def _family_of_library(version: str) -> str:
    return "openmpi" if "Open MPI" in version else "mpich"  # or a library derived from MPICH


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

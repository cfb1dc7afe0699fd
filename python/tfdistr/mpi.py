"""MPI as what carries the collectives: no server of TensorFlow's, no open port, no TF_CONFIG.

Each process is a rank that ``mpiexec`` (or ``srun``) has started; see ``MpiCollectives``.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from tfdistr.cluster import cluster_from_env
from tfdistr.errors import ClusterStartError

# What launchers tell their processes: the number of ranks, by MPICH and Slurm's PMI, and by Open MPI.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")


def launched_by_mpi() -> bool:
    """Whether a launcher of MPI started this process as one of several ranks, and mpi4py is there."""
    ranks = next((os.environ[name] for name in _SIZES if os.environ.get(name)), "1")
    return ranks.isdigit() and int(ranks) > 1 and importlib.util.find_spec("mpi4py") is not None


def chooses_mpi(communication: str) -> bool:
    """Whether MPI carries this process's collectives: as asked, or as launcher and TF_CONFIG suggest."""
    return communication == "mpi" or (
        communication == "auto" and launched_by_mpi() and cluster_from_env() is None
    )


def world() -> Any:
    """The communicator of all ranks, which starts MPI.

    Raises:
        ClusterStartError: mpi4py or an MPI library is missing.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # mpi4py raises the latter where it finds no library
        raise ClusterStartError(
            'communication="mpi" needs mpi4py and an MPI library.',
            received=str(error).splitlines()[0],
            fix="pip install 'tfdistr[mpi]', or install mpi4py for the MPI library of your machine.",
        ) from error
    return MPI.COMM_WORLD

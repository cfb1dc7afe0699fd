"""MPI as what carries the collectives: no server of TensorFlow's, no open port, no TF_CONFIG.

Each process is a rank that ``mpiexec`` (or ``srun``) has started; see ``MpiCollectives``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from typing import Any

from tfdistr._utils.mpi_ranks import ranks
from tfdistr._utils.processes import PARENT
from tfdistr.cluster.config import cluster_from_env
from tfdistr.communication.mpi_init_timeout import limit
from tfdistr.errors import ClusterStartError

#: A program that prints what the library of MPI says of itself: the process that asks may not have loaded it,
#: nor started MPI.
PRINT_LIBRARY = (
    "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
)


def launched_by_mpi() -> bool:
    """Whether a launcher of MPI started this process as one of several ranks, and mpi4py is there."""
    return ranks() > 1 and importlib.util.find_spec("mpi4py") is not None


def chooses_mpi(communication: str) -> bool:
    """Whether MPI carries this process's collectives: as asked, or as launcher and TF_CONFIG suggest."""
    return communication == "mpi" or (
        communication == "auto" and launched_by_mpi() and cluster_from_env() is None
    )


def world(start_timeout: float = 300.0) -> Any:
    """The communicator of all ranks, which starts MPI.

    This rank is ended if not all come to this within ``start_timeout`` seconds; see ``mpi_init_timeout``.

    Raises:
        ClusterStartError: mpi4py or an MPI library is missing, or its launcher is not that which has
            started this process.
    """
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.initialize, mpi4py.rc.finalize = False, True  # first see whose launcher this was
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # mpi4py raises the latter where it finds no library
        raise no_mpi(str(error).splitlines()[0]) from error
    library = MPI.Get_library_version().splitlines()[0].strip(" \0")
    if not MPI.Is_initialized():
        if "OMPI_COMM_WORLD_SIZE" in os.environ and ranks() > 1 and "Open MPI" not in library:
            raise _other_mpi(f"{library}, in a process that Open MPI's launcher has started")
        watched = ranks() > 1 and PARENT not in os.environ  # where that is set, a launcher of ours watches
        with limit(start_timeout) if watched else contextlib.nullcontext():
            MPI.Init_thread()
    size = MPI.COMM_WORLD.Get_size()
    if size != ranks() > 1:
        raise _other_mpi(f"{size} rank{'s' * (size > 1)} in the MPI of this process, which is {library}")
    return MPI.COMM_WORLD


def no_mpi(received: str) -> ClusterStartError:
    """The error where mpi4py or its library is missing."""
    return ClusterStartError(
        'communication="mpi" needs mpi4py and an MPI library.',
        received=received,
        fix="pip install 'tfdistr[mpi]', or install mpi4py for the MPI library of your machine.",
    )


def _other_mpi(received: str) -> ClusterStartError:
    return ClusterStartError(
        f"The {ranks()} processes that the launcher has started must be the ranks of one MPI.",
        received=received,
        fix="Use the mpiexec of that library (python -m mpi4py --mpi-lib names it); with srun, pass "
        "--mpi=pmi2 or --mpi=pmix, whichever the library speaks.",
    )


def finish() -> None:
    """End MPI, if it runs, in a process whose peers have all come as far.

    A process that leaves without has, for its launcher, failed.
    """
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        if MPI.Is_initialized() and not MPI.Is_finalized():
            MPI.Finalize()

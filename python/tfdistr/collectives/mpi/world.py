"""The start and the end of MPI in a rank that a launcher has started.

Each process is a rank that ``mpiexec`` (or ``srun``) has started; see ``MpiCollectives``. For ranks without a
launcher, see ``joining``.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import socket
import sys
from typing import Any

from tfdistr.collectives.mpi.obstacles import MORE_ROOM, free_room, too_small, why_refused
from tfdistr.collectives.mpi.rank_meeting import RankMeeting
from tfdistr.errors import ClusterStartError
from tfdistr.rendezvous.launcher_ranks import SLURM_RANK, launcher_of, ranks
from tfdistr.utils.processes import PARENT
from tfdistr.utils.shared_names import remove_names

#: A program that prints the version text of the MPI library, so that the caller need not load it.
PRINT_LIBRARY = (
    "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
)


def launched_by_mpi() -> bool:
    """Return whether an MPI launcher started this process as one of several ranks, and mpi4py exists.

    A plain ``srun`` is no MPI launcher: it starts tasks that are not ranks. ``srun --mpi=pmi2`` is one.
    """
    told = launcher_of()
    by_slurm_alone = told is not None and told[0] == SLURM_RANK
    return ranks() > 1 and not by_slurm_alone and importlib.util.find_spec("mpi4py") is not None


def world(start_timeout: float = 300.0) -> Any:
    """Start MPI, and return the communicator of all ranks.

    If not all ranks call this within ``start_timeout`` seconds, this rank is killed; see ``RankMeeting``.
    """
    MPI = _mpi4py(finalize=True)
    library = MPI.Get_library_version().splitlines()[0].strip(" \0")
    if not MPI.Is_initialized():
        if "OMPI_COMM_WORLD_SIZE" in os.environ and ranks() > 1 and "Open MPI" not in library:
            raise _other_mpi(f"{library}, in a process that Open MPI's launcher has started")
        if "MPICH" in library and ranks() > 1:
            _check_room()
        meeting = RankMeeting()
        watched = ranks() > 1 and PARENT not in os.environ  # if PARENT is set, a launcher of tfdistr watches
        with meeting.limit(start_timeout) if watched else contextlib.nullcontext():
            meeting.wait()
            code = _initialize(MPI)
        if code != MPI.SUCCESS:
            raise MPI.Exception(code)
        _errors_are_exceptions(MPI)
        MPI.COMM_WORLD.Barrier()  # all ranks have mapped the memory
        remove_names(os.getpid())
    size = MPI.COMM_WORLD.Get_size()
    if size != ranks() > 1:
        raise _other_mpi(f"{size} rank{'s' * (size > 1)} in the MPI of this process, which is {library}")
    return MPI.COMM_WORLD


def _check_room() -> None:
    _, rank, _, here = launcher_of() or ("", 0, 0, 0)
    why = why_refused() or too_small(free_room(), max(here, 1))
    if why:
        raise ClusterStartError(
            "MPI cannot share memory between the ranks of a host.",
            received=f"rank {rank} on {socket.gethostname()}: {why}",
            fix=f"{MORE_ROOM}.",
        )


def start_early() -> None:
    """Start MPI now, if ``srun --mpi`` has started this rank.

    MPICH 5 and the PMI 2 of Slurm 22.05 often fail to start MPI in a process that has imported Keras.
    """
    if launched_by_mpi() and SLURM_RANK in os.environ:
        world()


def no_mpi(received: str) -> ClusterStartError:
    """Return the error for a missing mpi4py or MPI library."""
    return ClusterStartError(
        'communication="mpi" needs mpi4py and an MPI library.',
        received=received,
        fix="pip install mpi4py mpich, or set MPI4PY_LIBMPI to the library of your machine's MPI.",
    )


def _other_mpi(received: str) -> ClusterStartError:
    return ClusterStartError(
        f"The {ranks()} processes that the launcher started are not the ranks of one MPI job.",
        received=received,
        fix="Use the mpiexec of that library (python -m mpi4py --mpi-lib names it); with srun, pass "
        '--mpi=pmi2 or --mpi=pmix, whichever the library speaks, or communication="ring".',
    )


def finish() -> None:
    """End MPI if it runs. All peers must have reached the same point.

    The launcher considers a process that exits without this as failed.
    """
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        if MPI.Is_initialized() and not MPI.Is_finalized():
            MPI.Finalize()


class MpiLibrary:
    """The library, which is loaded and not started. It is an error if it is not MPICH, or has started."""

    def __init__(self) -> None:
        self._mpi = _mpi4py(finalize=False)  # after a failure there is no orderly end
        if self._mpi.Is_initialized():
            raise ClusterStartError(
                "Cannot start MPI twice in a process.",
                received="a process in which MPI runs or has run",
                fix='Restart the process, or pass communication="ring".',
            )
        self.version = " ".join(self._mpi.Get_library_version().splitlines()[0].split()).strip("\0")
        if "MPICH" not in self.version:
            raise no_mpi(f"{self.version}; only MPICH starts without its launcher")

    def initialize(self) -> int:
        return _initialize(self._mpi)

    def finalize(self) -> None:
        _calls(self._mpi).MPI_Finalize()

    def world(self) -> Any:
        """Return the communicator of all ranks, whose errors are exceptions."""
        _errors_are_exceptions(self._mpi)
        return self._mpi.COMM_WORLD


def _mpi4py(*, finalize: bool) -> Any:
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.initialize, mpi4py.rc.finalize = False, finalize
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # mpi4py raises RuntimeError if it finds no library
        raise no_mpi(str(error).splitlines()[0]) from error
    return MPI


def _initialize(mpi: Any) -> int:
    """Start MPI without mpi4py, which would hold Python's lock until all ranks have come."""
    provided = ctypes.byref(ctypes.c_int())
    return int(_calls(mpi).MPI_Init_thread(None, None, mpi.THREAD_MULTIPLE, provided))


def _calls(mpi: Any) -> ctypes.CDLL:
    return ctypes.CDLL(mpi.__file__)  # this file has loaded the library


def _errors_are_exceptions(mpi: Any) -> None:
    for comm in (mpi.COMM_WORLD, mpi.COMM_SELF):
        comm.Set_errhandler(mpi.ERRORS_RETURN)

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
import time
from typing import Any

from tfdistr.collectives.mpi.init_timeout import job_name, limit
from tfdistr.collectives.mpi.room import MORE_ROOM, free_room, too_small, why_refused
from tfdistr.errors import ClusterStartError
from tfdistr.rendezvous.launcher_ranks import SLURM_RANK, launcher_of, ranks
from tfdistr.utils.processes import PARENT

_POLL_INTERVAL = 0.01
# Ranks with their own network namespaces cannot see each other here: they continue, and join in MPI_Init.
_LONGEST = 20.0

# Peers may check for this rank until all have called MPI_Init. Python closes a socket without references.
_shown: list[socket.socket] = []


def meet() -> None:
    """Wait until all ranks of this job have called this, if all of them are on this host.

    Each rank binds a socket whose name contains the job's name, and checks for the sockets of the others. The
    names are in Linux's abstract namespace: nothing is left of them when a process exits.
    """
    told, job = launcher_of(), job_name()
    if told is None or not job:
        return
    _, rank, ranks, on_this_host = told
    missing = set(range(ranks)) - {rank} if ranks == on_this_host else set()
    if not missing or not _show(_name(job, rank)):
        return
    until = time.monotonic() + _LONGEST
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as look:
        while missing and time.monotonic() < until:
            time.sleep(_POLL_INTERVAL)
            for peer in sorted(missing):
                with contextlib.suppress(OSError):  # it has not started, or is not visible
                    look.connect(_name(job, peer))
                    missing.remove(peer)


def _show(name: str) -> bool:
    own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        own.bind(name)
    except OSError:  # not on Linux, or the name is taken
        own.close()
        return False
    _shown.append(own)
    return True


def _name(job: str, rank: int) -> str:
    return f"\0tfdistr-{job[:80]}-{rank}"  # a name has at most 108 bytes


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

    If not all ranks call this within ``start_timeout`` seconds, this rank is killed; see ``init_timeout``.

    Raises:
        ClusterStartError: mpi4py or an MPI library is missing, or the launcher of another MPI library
            started this process.
    """
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.initialize, mpi4py.rc.finalize = False, True  # first check the launcher of this process
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # mpi4py raises RuntimeError if it finds no library
        raise no_mpi(str(error).splitlines()[0]) from error
    library = MPI.Get_library_version().splitlines()[0].strip(" \0")
    if not MPI.Is_initialized():
        if "OMPI_COMM_WORLD_SIZE" in os.environ and ranks() > 1 and "Open MPI" not in library:
            raise _other_mpi(f"{library}, in a process that Open MPI's launcher has started")
        if "MPICH" in library and ranks() > 1:
            _check_room()
        watched = ranks() > 1 and PARENT not in os.environ  # if PARENT is set, a launcher of tfdistr watches
        with limit(start_timeout) if watched else contextlib.nullcontext():
            meet()
            MPI.Init_thread()
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


_THREAD_MULTIPLE = 3


class MpiLibrary:
    """The library, which is loaded and not started. It is an error if it is not MPICH, or has started."""

    def __init__(self) -> None:
        self._mpi = _mpi4py()
        self.version = " ".join(self._mpi.Get_library_version().splitlines()[0].split()).strip("\0")
        if "MPICH" not in self.version:
            raise no_mpi(f"{self.version}; only MPICH starts without its launcher")
        self._calls = ctypes.CDLL(self._mpi.__file__)  # this file has loaded the library

    def initialize(self) -> int:
        """Start MPI, and return its error code."""
        return int(self._calls.MPI_Init_thread(None, None, _THREAD_MULTIPLE, ctypes.byref(ctypes.c_int())))

    def finalize(self) -> None:
        """End MPI."""
        self._calls.MPI_Finalize()

    def world(self) -> Any:
        """Return the communicator of all ranks, whose errors are exceptions."""
        for comm in (self._mpi.COMM_WORLD, self._mpi.COMM_SELF):
            comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        return self._mpi.COMM_WORLD


def _mpi4py() -> Any:
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.initialize = mpi4py.rc.finalize = False  # after a failure there is no orderly end
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise no_mpi(str(error).splitlines()[0]) from error
    if MPI.Is_initialized():
        raise ClusterStartError(
            "Cannot start MPI twice in a process.",
            received="a process in which MPI runs or has run",
            fix='Restart the process, or pass communication="ring".',
        )
    return MPI

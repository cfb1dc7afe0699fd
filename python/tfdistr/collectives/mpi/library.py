"""The MPI library of mpi4py, called without Python's lock, so that other threads go on meanwhile."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from tfdistr.collectives.mpi.world import no_mpi
from tfdistr.errors import ClusterStartError

_THREAD_MULTIPLE = 3


class MpiLibrary:
    """The library, which is loaded and not started.

    Raises:
        ClusterStartError: There is no MPI here, or not MPICH, or it has started already.
    """

    def __init__(self) -> None:
        self._mpi = _mpi4py()
        self.version = " ".join(self._mpi.Get_library_version().splitlines()[0].split()).strip("\0")
        if "MPICH" not in self.version:
            raise no_mpi(f"{self.version}; only MPICH starts without its launcher")
        self._calls = ctypes.CDLL(self._mpi.__file__)  # which has loaded the library

    def initialize(self) -> int:
        """Start MPI, and return its error code."""
        return int(self._calls.MPI_Init_thread(None, None, _THREAD_MULTIPLE, ctypes.byref(ctypes.c_int())))

    def finalize(self) -> None:
        """End MPI."""
        self._calls.MPI_Finalize()

    def world(self) -> Any:
        """The communicator of all ranks, whose errors are exceptions."""
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
            "MPI starts only once in a process.",
            received="a process in which MPI runs already, or has run",
            fix='Start the process again, or pass communication="ring".',
        )
    return MPI

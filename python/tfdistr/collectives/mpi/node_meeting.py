"""The ranks of one host wait for each other before ``MPI_Init``.

A rank that waits in ``MPI_Init`` of MPICH takes all of a core, until the last rank has come. Where cores are
few, the late rank gets less of them. Here a rank sleeps meanwhile.
"""

from __future__ import annotations

import contextlib
import socket
import time

from tfdistr.collectives.mpi.shared_names import job_name
from tfdistr.rendezvous.launcher_ranks import launcher_of

_LOOK = 0.01
# Ranks with network namespaces of their own cannot see each other here: they go on, and meet in MPI_Init.
_LONGEST = 20.0

# Peers may look for this rank until all have called MPI_Init. Python closes a socket that nothing refers to.
_shown: list[socket.socket] = []


def meet() -> None:
    """Wait until all ranks of this job have called this, if all of them are on this host.

    Each rank binds a socket whose name has the name of the job, and looks for the sockets of the others. The
    names are in Linux's abstract namespace: nothing is left of them when a process ends.
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
            time.sleep(_LOOK)
            for peer in sorted(missing):
                with contextlib.suppress(OSError):  # it has not come, or may not be looked for
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

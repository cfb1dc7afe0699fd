"""A limit to what a rank waits for the others at its start, which MPI and its launchers do not have.

A rank that never comes to ``MPI_Init``, or ends before, leaves the others in there for ever: they cannot even
be interrupted, for mpi4py keeps the interpreter's lock meanwhile. So a process of its own watches over each.
It sees the ranks of its host in /proc, and ends its own rank, and so the job, when one of them has ended, or
when the time is over.

    python mpi_start.py PARENT_PID SECONDS    (until its standard input ends)
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# What launchers tell a rank: its number, that of all, and that of those on its host (MPICH, Open MPI, Slurm).
_NAMES = (
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""),
)
_LOOK = 1.0
# Who knows which worker is missing speaks first.
_POLITE = 2.0


@contextlib.contextmanager
def limit(start_timeout: float) -> Iterator[None]:
    """Have this rank ended if it is still in this context when another has ended, or the time is over.

    The error goes to standard error, and the rank is killed: launchers end a job of which one rank was.

    Args:
        start_timeout: Seconds.
    """
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(start_timeout)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as watcher:
        try:
            yield
        finally:
            watcher.communicate()


def main(parent: int, timeout: float) -> None:
    """Watch over the process ``parent``, which waits in MPI."""
    name, rank, size, local = _told()
    until = time.monotonic() + timeout
    before: set[int] = set()
    while not select.select([sys.stdin], [], [], _LOOK)[0]:
        here, came = _ranks_here(parent, name, rank)
        # Twice: a rank may have ended because all have started.
        ended = set(range(size)) - here if local == size and here else set()
        lost = sorted(ended & before)
        before = ended
        late = time.monotonic() > until
        if not (lost or late):
            continue
        missing = [f"worker {other}, which has ended" for other in lost] or [
            f"worker {other}, which is there, but has not come so far" for other in sorted(here - came)
        ]
        if not missing and select.select([sys.stdin], [], [], _POLITE)[0]:
            return
        what = " and ".join(missing) or "a worker that is not to be seen from here"
        within = f" within {timeout:g} s, which is `start_timeout`" if late else ""
        print(
            f"ClusterStartError: Each worker must come to the start of MPI{within}.\n"
            f"Received: worker {rank} on {socket.gethostname()} (process {parent}): waited for {what}\n"
            "Fix: See what that worker has printed; have each rank call distributed_fit(), or make the "
            "strategy.",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        if os.getppid() == parent:
            remove_names(parent)
            os.kill(parent, signal.SIGKILL)
        return


def remove_names(process: int) -> None:
    """Remove the names of memory that a rank shares with others: MPICH would leave them if it is killed.

    To be called when all ranks have mapped it, or none is to come any more.
    """
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            path = line.split(maxsplit=5)[-1]
            if path.startswith("/dev/shm/mpich_shm_"):
                Path(path).unlink(missing_ok=True)


def _told() -> tuple[str, int, int, int]:
    """What the launcher calls the number of a rank, which this one has, and how many there are, here, too.

    0 is what it does not say.
    """
    for names in _NAMES:
        if os.environ.get(names[0], "").isdigit():
            rank, size, local = (int(os.environ.get(name, "0")) for name in names)
            return names[0], rank, size, local
    return "", 0, 0, 0


def _ranks_here(parent: int, name: str, rank: int) -> tuple[set[int], set[int]]:
    """The ranks of this job that run on this host, and those of them that wait in MPI.

    None where this cannot be seen: a container may have a process table of its own for each rank.
    """
    launcher = _launcher(parent, name)
    if _environment(parent).get(name.encode()) != str(rank).encode() or launcher <= 1:
        return set(), set()
    here, came = {rank}, {rank}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        other = _environment(int(folder.name)).get(name.encode(), b"")
        if other.isdigit() and _launcher(int(folder.name), name) == launcher:
            here.add(int(other))
            with contextlib.suppress(OSError):
                if __file__.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                    came.add(int(other))
    return here, came


def _launcher(process: int, name: str) -> int:
    """The process that has started a rank, which may be a process of a process of it."""
    while process > 1 and name.encode() in _environment(process):
        process = _parent(process)
    return process


def _environment(process: int) -> dict[bytes, bytes]:
    """The environment with which a process was started; nothing if it is gone, or another user's."""
    with contextlib.suppress(OSError):
        entries = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
    return {}


def _parent(process: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))

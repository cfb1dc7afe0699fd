"""A time limit for the start of a rank, because MPI and its launchers have none.

If a rank never calls ``MPI_Init``, or exits before, the others wait in it forever. They cannot even be
interrupted, because mpi4py holds the interpreter's lock meanwhile. So a separate process watches each rank.
It sees the ranks of its host in /proc. If one of them has exited, or at the timeout, it kills its own rank,
and so the job. It runs until the rank has removed the names of its shared memory, which MPICH maps in
``MPI_Init``, and which stay in /dev/shm if a rank is killed. If the rank exits before, the watching process
removes the names. MPICH makes them from the job's name. The process manager of ``mpiexec`` tells it to any
process that has the connection of a rank; so the rank asks for it before it starts MPI.

    python init_timeout.py PARENT_PID SECONDS    (until its standard input ends)

It reads a line with the name of the job, and a second line when the rank has started.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_POLL_INTERVAL = 1.0
# A process that does not know the missing worker waits: another may know it and report first.
_POLITE = 2.0
# Python cannot import tfdistr when this file is run by path.
_NAMES = runpy.run_path(str(Path(__file__).parents[2] / "utils/shared_names.py"))

_watchers: list[subprocess.Popen[bytes]] = []


@contextlib.contextmanager
def limit(start_timeout: float) -> Iterator[None]:
    """Kill this rank if it is still in this context when another rank has exited, or at the timeout.

    The error goes to standard error, and the rank is killed. Launchers end a job after such a kill.
    """
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(start_timeout)]
    # A new session, because a signal that kills this process group must not kill the watcher.
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    _watchers.append(watcher)
    _tell(watcher, job_name())
    try:
        yield
    finally:
        _tell(watcher, "started")


def remove_own_names() -> None:
    """Remove the names of the memory that this rank shares. All ranks must have mapped it."""
    _NAMES["remove_names"](os.getpid())
    while _watchers:
        _watchers.pop().communicate()


def _tell(watcher: subprocess.Popen[bytes], line: str) -> None:
    assert watcher.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        watcher.stdin.write(f"{line}\n".encode())
        watcher.stdin.flush()


class _WaitingRank:
    """The state of the rank, from its messages.

    Attributes:
        ended: Whether it has exited, or no longer needs the watcher.
        mapped: Names of the memory that it had mapped. They are needed if the job has no name.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self._output = b""
        self.job, self.started, self.ended = "", False, False
        self.mapped: set[Path] = set()

    def listen(self, seconds: float) -> bool:
        """Wait for a message, at most ``seconds``. Return whether the rank still has to start."""
        if select.select([sys.stdin], [], [], seconds)[0]:
            part = os.read(sys.stdin.fileno(), 1024)
            self._output += part
            self.ended = not part
        # Its forks may keep its end of the pipe open.
        self.ended = self.ended or os.getppid() != self._process
        self.mapped |= _NAMES["mapped_names"](self._process)
        *lines, _ = self._output.decode().split("\n")
        self.job, self.started = lines[0] if lines else "", len(lines) > 1
        return not (self.started or self.ended)


def main(parent: int, timeout: float) -> None:
    """Watch the process ``parent``, which waits in MPI for at most ``timeout`` seconds."""
    ranks = runpy.run_path(str(Path(__file__).parents[2] / "rendezvous/launcher_ranks.py"))
    rank = _WaitingRank(parent)
    _watch(rank, parent, timeout, ranks["launcher_of"]() or ("", 0, 0, 0))
    while not rank.ended:
        rank.listen(_POLL_INTERVAL)
    _NAMES["remove_names_of_job"](rank.job)
    for path in rank.mapped:
        path.unlink(missing_ok=True)


def _watch(waits: _WaitingRank, parent: int, timeout: float, told: tuple[str, int, int, int]) -> None:
    """Kill the rank if it does not start. ``told`` is the result of ``launcher_of`` for it."""
    name, rank, size, local = told
    until = time.monotonic() + timeout
    before: set[int] = set()
    while waits.listen(_POLL_INTERVAL):
        here, came = _ranks_here(parent, name, rank)
        # Needs two polls: a rank may have exited because all ranks have started.
        ended = set(range(size)) - here if local == size and here else set()
        lost = sorted(ended & before)
        before = ended
        late = time.monotonic() > until
        if not (lost or late):
            continue
        missing = [f"worker {other}, which has exited" for other in lost] or [
            f"worker {other}, which runs, but has not called MPI_Init" for other in sorted(here - came)
        ]
        if not missing and not waits.listen(_POLITE):
            return
        what = " and ".join(missing) or "a worker that is not visible from here"
        within = f" within {timeout:g} s, which is `start_timeout`" if late else ""
        print(
            f"ClusterStartError: Not all workers started MPI{within}.\n"
            f"Received: worker {rank} on {socket.gethostname()} (process {parent}): waited for {what}\n"
            "Fix: See the output of that worker; make each rank call distributed_fit() or create the "
            "strategy.",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        if os.getppid() == parent:
            os.kill(parent, signal.SIGKILL)
        return


def _ranks_here(parent: int, name: str, rank: int) -> tuple[set[int], set[int]]:
    """Return the ranks of this job on this host, and the ranks among them that wait in MPI.

    Both sets are empty if this cannot be seen: a container may have a separate process table for each rank.
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
    """Return the launcher process of a rank. There may be other processes between the two."""
    while process > 1 and name.encode() in _environment(process):
        process = _parent(process)
    return process


def _environment(process: int) -> dict[bytes, bytes]:
    """Return the environment at the start of a process; empty if it has exited, or is another user's."""
    with contextlib.suppress(OSError):
        entries = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
    return {}


def _parent(process: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def job_name() -> str:
    """Return the name of this process's job, from MPICH's process manager; "" without such a manager.

    MPI must not have started in this process: otherwise MPI would receive the answer.
    """
    manager = os.environ.get("PMI_FD", "")
    # Only MPICH's manager sets both. Slurm's manager needs a greeting before a question.
    if not manager.isdigit() or "PMI_HOSTNAME" not in os.environ:
        return ""
    answer = b""
    with contextlib.suppress(OSError):
        if not stat.S_ISSOCK(os.fstat(int(manager)).st_mode):
            return ""  # the parent process has not passed on the connection
        os.write(int(manager), b"cmd=get_my_kvsname\n")
        while not answer.endswith(b"\n"):
            part = os.read(int(manager), 1024)
            if not part:
                return ""
            answer += part
    words = dict(word.split("=", 1) for word in answer.decode().split() if "=" in word)
    return words.get("kvsname", "")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))

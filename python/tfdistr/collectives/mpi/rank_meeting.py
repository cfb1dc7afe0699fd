"""The meeting of the ranks that an MPI launcher has started, and its time limit.

If a rank exits before it calls ``MPI_Init``, or never calls it, the others wait in it forever, and each takes
all of a core. So the ranks of a host first wait for each other in Python. Each binds a socket whose name has
its rank, in Linux's abstract namespace: nothing is left of it when the process exits. Until MPI has started,
a thread looks in /proc for ranks of this host that have exited.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tfdistr.errors import ClusterStartError
from tfdistr.rendezvous.launcher_ranks import launcher_of
from tfdistr.utils.shared_names import remove_names

_POLL_INTERVAL = 0.01
# Ranks with their own network namespaces cannot see each other here: they continue, and join in MPI_Init.
_LONGEST = 20.0
_WATCH_INTERVAL = 1.0
# A process that does not know the missing worker waits: another may know it and report first.
_POLITE = 2.0


class RankMeeting:
    """The ranks of this job, as far as this process sees them. Keep it until MPI has started."""

    def __init__(self) -> None:
        self._variable, self._rank, self._ranks, self._on_this_host = launcher_of() or ("", 0, 0, 0)
        visible = _environment(os.getpid()).get(self._variable) == str(self._rank)
        self._launcher = _launcher(os.getpid(), self._variable) if visible else 0
        self._shown = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def wait(self) -> None:
        """Wait until all ranks of this job have called this, if all of them are on this host."""
        missing = self._others()
        if not missing or self._launcher <= 1:
            return
        try:
            self._shown.bind(self._name(self._rank))
        except OSError:  # not on Linux, or the name is taken
            return
        until = time.monotonic() + _LONGEST
        while missing and time.monotonic() < until:
            time.sleep(_POLL_INTERVAL)
            missing = {rank for rank in missing if not self._has_come(rank)}

    @contextlib.contextmanager
    def limit(self, start_timeout: float) -> Iterator[None]:
        """Kill this rank if it is still in this context when another rank has exited, or at the timeout.

        The error goes to standard error. Launchers end a job after such a kill.
        """
        started = threading.Event()
        watch = threading.Thread(target=self._watch, args=(started, start_timeout), daemon=True)
        watch.start()
        try:
            yield
        finally:
            started.set()

    def _watch(self, started: threading.Event, start_timeout: float) -> None:
        until = time.monotonic() + start_timeout
        before: set[int] = set()
        while not started.wait(_WATCH_INTERVAL):
            here = self._running()
            # Needs two polls: a rank may have exited because all ranks have started.
            exited = self._others() - here if here else set()
            lost, before = exited & before, exited
            late = time.monotonic() > until
            if not (lost or late):
                continue
            waited_for = [f"worker {rank}, which has exited" for rank in sorted(lost)] or [
                f"worker {rank}, which runs, but has not called MPI_Init"
                for rank in sorted(here - {self._rank}) if not self._has_come(rank)
            ]  # fmt: skip
            if not waited_for and started.wait(_POLITE):
                return
            what = " and ".join(waited_for) or "a worker that is not visible from here"
            within = f" within {start_timeout:g} s, which is `start_timeout`" if late else ""
            error = ClusterStartError(
                f"Not all workers started MPI{within}.",
                received=f"worker {self._rank} on {socket.gethostname()} (process {os.getpid()}): "
                f"waited for {what}",
                fix="See the output of that worker; make each rank call distributed_fit() or create the "
                "strategy.",
            )
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            remove_names(os.getpid())
            os.kill(os.getpid(), signal.SIGKILL)

    def _others(self) -> set[int]:
        return set(range(self._ranks)) - {self._rank} if self._ranks == self._on_this_host else set()

    def _running(self) -> set[int]:
        """Return the ranks on this host that run.

        Empty if this cannot be seen: a container may have a separate process table for each rank.
        """
        if self._launcher <= 1:
            return set()
        found: set[int] = set()
        for folder in Path("/proc").glob("[0-9]*"):
            rank = _environment(int(folder.name)).get(self._variable, "")
            if rank.isdigit() and _launcher(int(folder.name), self._variable) == self._launcher:
                found.add(int(rank))
        return found

    def _has_come(self, rank: int) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as look, contextlib.suppress(OSError):
            look.connect(self._name(rank))
            return True
        return False

    def _name(self, rank: int) -> str:
        # The process table: containers may share the network, and have launchers of the same number.
        table = os.readlink("/proc/self/ns/pid")
        return f"\0tfdistr-{table}-{self._launcher}-{rank}"


def _launcher(process: int, variable: str) -> int:
    """Return the launcher of a rank: the first process above it without this variable; 0 if not visible."""
    while process > 1 and variable in _environment(process):
        process = _parent(process)
    return process


def _environment(process: int) -> dict[str, str]:
    """Return the environment at the start of a process; empty if it has exited, or is another user's."""
    with contextlib.suppress(OSError):
        entries = Path(f"/proc/{process}/environ").read_text(errors="replace").split("\0")
        return dict(entry.split("=", 1) for entry in entries if "=" in entry)
    return {}


def _parent(process: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return 0

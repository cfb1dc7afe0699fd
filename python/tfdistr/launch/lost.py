"""The error of an mpiexec that ended before its ranks, with the host on which something was lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfdistr.errors import ClusterStartError, WorkerFailedError
from tfdistr.launch import rank_guard

if TYPE_CHECKING:
    from tfdistr.launch.mpiexec import Rank

_LAST_LINES = 10
# The beginnings of lines in which MPICH's launcher names places in its own code.
_INNER = ("[mpiexec@", "[proxy")
# The line in which Open MPI's launcher names a host that it has lost.
_REMOTE = re.compile(r"\s*Remote daemon\s*:.* on node (\S+)")
# From this exit status on, the program that mpiexec starts on a host was not found there, was killed, or was
# lost by ssh. If the program loses mpiexec, it ends with a lower status.
_NOT_BY_ITSELF = 126


def reaching(file: Path, hosts: Sequence[str], ssh: Sequence[str]) -> list[str]:
    """The command that reaches a host by ``ssh``, and writes its exit status to ``file``; see reach.py."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reach.py")
    options = [str(file), str(os.getpid()), ",".join(hosts), str(len(ssh))]
    return [sys.executable, "-I", "-S", program, *options, *ssh]


class Loss:
    """An mpiexec that ended before its ranks.

    Args:
        status: The exit status of mpiexec.
        lines: The lines that mpiexec has printed.
        workers: Number of its ranks.
        lost: The ranks that had not ended.
    """

    def __init__(self, status: int, lines: Sequence[str], workers: int, lost: Sequence[Rank]) -> None:
        self._status, self._lines, self._workers, self._lost = status, lines, workers, list(lost)
        silence = {rank.index: rank.silent_for for rank in lost}
        self._silent = {
            index: seconds for index, seconds in silence.items() if seconds > 2 * rank_guard.SIGN_OF_LIFE
        }
        self._started = all(rank.pid for rank in lost)
        # The guard of mpiexec ends with mpiexec's status, or with 128 + signal, as a shell does.
        self._killed = -status if status < 0 else status - 128 if status > 128 else None
        if self._killed is not None and self._killed not in set(signal.Signals):
            self._killed = None

    def error(self, reached: Path) -> ClusterStartError | WorkerFailedError:
        """The error of the job.

        Args:
            reached: The file with the exit status of each program that reached a host for mpiexec.
        """
        hosts = [] if self._killed else self._hosts(_statuses(reached))
        return self._ended_early(hosts) if self._started else self._not_all_started(hosts)

    def _hosts(self, statuses: dict[str, int | None]) -> list[str]:
        """The hosts on which something was lost; none if they are not known."""
        hosts = list(dict.fromkeys(rank.host for rank in self._lost))
        if len(hosts) == 1:
            return hosts
        found = {match[1] for line in self._lines if (match := _REMOTE.match(line))}
        silent = {rank.host for rank in self._lost if rank.index in self._silent}
        bad = {h for h, s in statuses.items() if s is not None and not 0 <= s < _NOT_BY_ITSELF}
        hanging = {host for host, status in statuses.items() if status is None}
        # This machine is not reached by ssh.
        others = set(hosts) - set(statuses) if statuses else set()
        for lost in (found, silent | bad, hanging, others if len(others) == 1 else set()):
            if lost & set(hosts):
                return [host for host in hosts if host in lost]
        return []

    def _not_all_started(self, hosts: Sequence[str]) -> ClusterStartError:
        never = [rank for rank in self._lost if not rank.pid]
        there = [rank for rank in never if rank.host in hosts] or never
        error = ClusterStartError(
            f"mpiexec must start all {self._workers} workers, and must not end before they do.",
            received=f"mpiexec{self._ended()} without workers {_names(there)}. "
            f"Its last lines:\n{_last(self._lines)}",
            fix="Each host must let you in by ssh without a password, and have this Python and tfdistr at "
            f"the same path: {sys.executable}.",
        )
        if self._killed:
            error.host = socket.gethostname()
        elif there[0].host in hosts:
            error.worker, error.host = there[0].index, there[0].host
        return error

    def _ended_early(self, hosts: Sequence[str]) -> WorkerFailedError:
        there = [rank for rank in self._lost if rank.host in hosts]
        # The rank with the longest silence shows how long the host was lost.
        first = max(there, key=lambda rank: (self._silent.get(rank.index, 0.0), -rank.index), default=None)
        if first is not None and first.index in self._silent:
            said = (
                f"Worker {first.index} of {self._workers} on {first.host} was lost: it gave no sign of life "
                f"for {self._silent[first.index]:.0f} s, and then mpiexec{self._ended()}."
            )
        elif there:
            said = (
                f"{_who(there)} lost with what mpiexec runs there, and then mpiexec{self._ended()}."
            )
        elif self._killed:
            said = f"{_who(self._lost)} lost: mpiexec{self._ended()}."
        else:
            said = (
                f"{_who(self._lost)} lost: mpiexec{self._ended()} before they did. On which host something "
                "was lost is not known."
            )
        return WorkerFailedError(
            f"{said}\n\nIts last lines:\n{_last(self._lines)}",
            worker=first.index if first else None,
            host=first.host if first else socket.gethostname() if self._killed else "unknown",
            pid=first.pid if first else None,
            log=str(first.log) if first else None,
            fix="See whether the hosts run and can be reached, and whether the system, or somebody else, "
            "ended processes of mpiexec.",
        )

    def _ended(self) -> str:
        if self._killed:
            return f" on {socket.gethostname()} was killed by {signal.Signals(self._killed).name}"
        return f" ended with status {self._status}"


def _statuses(file: Path) -> dict[str, int | None]:
    """The exit status of the program that reached each host, by host; None if it had to be killed."""
    found: dict[str, int | None] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in file.read_text().splitlines():
            note = json.loads(line)
            found[note["host"]] = note["status"]
    return found


def _who(ranks: Sequence[Rank]) -> str:
    return f"Worker{'s' * (len(ranks) > 1)} {_names(ranks)} {'were' if len(ranks) > 1 else 'was'}"


def _names(ranks: Sequence[Rank]) -> str:
    return ", ".join(f"{rank.index} on {rank.host}" for rank in ranks)


def _last(lines: Sequence[str]) -> str:
    plain = [line for line in lines if not line.startswith(_INNER)] or lines
    return "\n".join(f"  {line}" for line in plain[-_LAST_LINES:]) or "  (nothing)"

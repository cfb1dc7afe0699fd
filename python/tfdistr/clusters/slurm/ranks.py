"""Workers that srun starts: what they report, how they end, and the error if they are lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfdistr.clusters import rank_guard
from tfdistr.clusters.hosts import not_started, unseen_run_dir
from tfdistr.clusters.program_output import ProgramOutput
from tfdistr.clusters.slurm.programs import names
from tfdistr.clusters.worker_process import log_path
from tfdistr.errors import ClusterStartError, TfdistrError, WorkerFailedError
from tfdistr.utils.log_tail import Tail
from tfdistr.utils.trusted_files import create_private

_LAST_LINES = 10
# The line in which srun names a node that Slurm has lost.
_LOST_NODE = re.compile(r"\s*srun: error: Node failure on (\S+)")
# The line in which srun names a task that has ended badly; the first one has made it end the others.
_LOST_TASK = re.compile(r"\s*srun: error: \S+: task (\d+): (.+)")
# What MPICH and Slurm say of ranks that are ended, which says nothing of the reason.
_NOISE = (
    "srun: Job step aborted",
    "srun: launch/slurm:",
    "srun: got SIGCONT",
    "srun: forcing job termination",
)


class SlurmRank:
    """A task of srun that is a worker, with the interface of `Worker`. Its guard names its node and step.

    Args:
        job: The srun.
        index: The index of the worker, which is its rank.
        run_dir: The directory of the run.
    """

    def __init__(self, job: Ranks, index: int, run_dir: Path) -> None:
        self.index = index
        self.host, self.step = "a node of Slurm", ""
        self.log = log_path(run_dir, index)
        self.pid = 0  # until it has started
        self.exit_code: int | None = None
        self.is_stopped = False
        self.failed: str | None = None
        self._job = job
        self._warning = run_dir / rank_guard.WARNING
        self._heard: float | None = None
        self._started, self._ended = time.monotonic(), 0.0

    @property
    def seconds(self) -> float:
        """Seconds from its start to its end, or until now."""
        return (time.monotonic() if self.exit_code is None else self._ended) - self._started

    @property
    def silent_for(self) -> float:
        """Seconds since its last heartbeat, beyond those that heartbeats may come late; 0 if it has ended."""
        if self._heard is None or self.exit_code is not None:
            return 0.0
        return max(0.0, time.monotonic() - self._heard - self._job.late)

    def poll(self) -> int | None:
        """Check whether it has ended."""
        self._job.look()
        return self.exit_code

    def take(self, message: Mapping[str, Any]) -> None:
        """Process a message of its guard."""
        self._heard = time.monotonic()
        self.host = str(message.get("host", self.host))
        self.step = str(message.get("step", self.step))
        self.pid = message.get("pid", self.pid)
        self.is_stopped = message.get("stopped", self.is_stopped)
        if "failed" in message:
            self._job.failure = self._job.failure or _not_started(self, message)
            self.end(1)
        if "exit_code" in message:
            self.end(message["exit_code"])

    def end(self, exit_code: int) -> None:
        """Note that it has ended."""
        if self.exit_code is None:
            self.exit_code, self._ended = exit_code, time.monotonic()

    def signal_group(self, number: signal.Signals) -> None:
        """End all ranks: srun passes the request on."""
        self._job.end(kill=number == signal.SIGKILL)

    def warn(self) -> None:
        """Send SIGTERM, as a scheduler does some time before it ends a process."""
        self._warning.touch()  # its guard looks for the file at each heartbeat

    def reap(self) -> None:
        """Wait until srun and its processes have ended."""
        self._job.reap()

    def launch_error(self) -> TfdistrError | None:
        """The error if it could not be started, or if srun ended before it did."""
        return self._job.error()

    def news(self) -> list[str]:
        """The news of its job, which no other rank tells again."""
        return self._job.news()

    def begin(self) -> None:
        """Count its seconds from now: before, its job was in the queue."""
        self._started = time.monotonic()


class Ranks:
    """The tasks of one srun, as their launcher sees them. The base of `Srun` and of `Batch`.

    Args:
        command: The command of a worker; the run directory and the index are added.
        run_dir: The directory of the run, which all nodes see.
        environments: Environment variables for each worker.
        log: The name of the file with the output of srun, in the folder of the logs.

    Attributes:
        ranks: The workers.
        failure: The error of the launcher, if there is one.
        late: Seconds that the heartbeats may come late.
    """

    def __init__(
        self,
        command: Sequence[str],
        run_dir: str | os.PathLike[str],
        environments: Sequence[Mapping[str, str]],
        log: str,
    ) -> None:
        self.failure: TfdistrError | None = None
        self.late = 0.0
        self._folder = Path(run_dir).absolute()
        self.ranks = [SlurmRank(self, index, self._folder) for index in range(len(environments))]
        self._log = log_path(self._folder, 0).with_name(log)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        (self._folder / rank_guard.WARNING).unlink(missing_ok=True)
        # New files: the ranks of a session that was killed may still write into those of its run.
        for file in (self._log, *(rank.log for rank in self.ranks)):
            file.unlink(missing_ok=True)
            file.touch()
        # The values may be secret: neither a script nor a command line, which others see, has them.
        spec = {"command": list(command), "environments": [dict(env) for env in environments]}
        with create_private(self._folder / rank_guard.SPEC, "w") as private:
            json.dump(spec, private)
        self._output: Tail | ProgramOutput = Tail(self._log)
        self._lines: list[str] = []

    @property
    def guard(self) -> list[str]:
        """The command of a task."""
        return [sys.executable, "-I", "-S", rank_guard.__file__, "rank", os.fspath(self._folder)]

    def look(self) -> None:
        """Look at the ranks; a subclass reads their output."""
        raise NotImplementedError

    def end(self, *, kill: bool) -> None:
        """Ask the ranks to end; ``kill`` ends at once the ranks that were asked before."""
        raise NotImplementedError

    def reap(self) -> None:
        """Wait until nothing of the ranks is left."""
        raise NotImplementedError

    def error(self) -> TfdistrError | None:
        """The error if a worker could not be started, or was lost."""
        return self.failure

    def news(self) -> list[str]:
        """What the user should know of the queue since the last call."""
        return []

    def _read(self, *, final: bool) -> None:
        """Read the output since the last call."""
        for line in self._output.lines(final=final):
            if line.startswith(rank_guard.MARK):
                with contextlib.suppress(ValueError, KeyError, IndexError):
                    message = json.loads(line.removeprefix(rank_guard.MARK))
                    self.ranks[message["rank"]].take(message)
            elif line.strip():
                self._lines.append(line)

    def _lose(self, what: str, fix: str | None = None) -> None:
        """Note that the ranks that have not ended are lost; ``what`` has ended, and says how."""
        lost = [rank for rank in self.ranks if rank.exit_code is None]
        if self.failure is None and lost:
            self.failure = lost_error(what, self._lines, self.ranks, lost, fix)
        for rank in lost:
            rank.end(1)


def lost_error(
    what: str, lines: Sequence[str], ranks: Sequence[SlurmRank], lost: Sequence[SlurmRank],
    fix: str | None = None,
) -> ClusterStartError | WorkerFailedError:  # fmt: skip
    """The error for ranks that were lost.

    Args:
        what: What has ended, and how: "srun ended with status 1".
        lines: The lines that srun has printed.
        ranks: All ranks.
        lost: The ranks that had not ended.
        fix: What the user can do.
    """
    never = [rank for rank in lost if not rank.pid]
    said = "\n".join(f"  {line}" for line in _telling(lines)) or "  (nothing)"
    if never:
        return ClusterStartError(
            f"Slurm must start all {len(ranks)} workers, and the job must not end before they do.",
            received=f"{what} without workers {', '.join(str(rank.index) for rank in never)}. "
            f"Its last lines:\n{said}",
            fix=fix
            or "See in these lines what Slurm names. Each node must have this Python and tfdistr at the same "
            f"path: {sys.executable}.",
        )
    nodes = [match[1] for line in lines if (match := _LOST_NODE.match(line))]
    silent = max(lost, key=lambda rank: rank.silent_for)
    if silent.silent_for > 3 * rank_guard.HEARTBEAT:
        nodes.append(silent.host)
    there = [rank for rank in lost if rank.host in nodes]
    # Where Slurm has ended the whole job, the end of a task is no reason.
    tasks = [match for line in lines if what.startswith("srun ") and (match := _LOST_TASK.match(line))]
    task = tasks[0] if tasks and not there else None
    ended = [rank for rank in lost if task and rank.index == int(task[1])]
    first = next(iter(there or ended), None)
    who = f"Worker{'s' * (len(lost) > 1)} {', '.join(f'{rank.index} on {rank.host}' for rank in lost)}"
    reason = f", after the loss of node {names(nodes)}" if there else ""
    if task and ended:
        reason = f", after the end of worker {task[1]} ({task[2].strip()})"
    return WorkerFailedError(
        f"{who} {'were' if len(lost) > 1 else 'was'} lost: {what}{reason}.\n\nIts last lines:\n{said}",
        worker=first.index if first else None,
        host=first.host if first else "unknown",
        pid=first.pid if first else None,
        log=str(first.log) if first else None,
        fix=fix or "See whether somebody, or Slurm, has ended the job (sacct, scontrol show job).",
    )


def _not_started(rank: SlurmRank, message: Mapping[str, Any]) -> ClusterStartError:
    host = message["host"]
    if message["missing"]:
        return unseen_run_dir(message["missing"], host, rank.index)
    return not_started(rank.index, host, message["failed"])


def _telling(lines: Sequence[str]) -> list[str]:
    plain = [line for line in lines if not line.startswith(_NOISE)] or list(lines)
    return plain[-_LAST_LINES:]


def srun_line(
    counts: Sequence[int], *, cores: int | None, mpi: str, exclude: Sequence[str] = (), local: bool = True
) -> list[str]:
    """The command by which srun starts the ranks; the program of a rank follows.

    Args:
        counts: The number of workers on each node.
        cores: The number of cores of each worker; None for the number that Slurm gives.
        mpi: What starts MPI: "pmi2", "pmix" or "none".
        exclude: Nodes of the allocation that get no worker.
        local: Whether srun runs in an allocation in which other steps may run.
    """
    line = ["srun", "--kill-on-bad-exit=1", "--quit-on-interrupt", "--distribution=block", "--export=ALL",
            f"--mpi={mpi}", f"--nodes={len(counts)}", f"--ntasks={sum(counts)}"]  # fmt: skip
    if len(set(counts)) == 1:
        line.append(f"--ntasks-per-node={counts[0]}")
    if cores is not None:
        line.append(f"--cpus-per-task={cores}")
    if exclude:
        line.append(f"--exclude={','.join(exclude)}")
    if local:
        line.append("--overlap")  # the step of a shell has the cores otherwise
    return line


def how_ended(status: int) -> str:
    """How a program ended, as a shell writes its status."""
    number = -status if status < 0 else status - 128
    if number in set(signal.Signals):
        return f"on {socket.gethostname()} was killed by {signal.Signals(number).name}"
    return f"ended with status {status}"


def shell_line(words: Sequence[str]) -> str:
    """A command as a line of a shell script."""
    return shlex.join(words)

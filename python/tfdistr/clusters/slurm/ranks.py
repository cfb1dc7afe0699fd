"""Workers that srun starts: their start and end, and the error if they are lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfdistr.clusters import guard
from tfdistr.clusters.remote_worker import ProgramOutput, RemoteJob, RemoteWorker, message_in, quoted_lines
from tfdistr.clusters.slurm.programs import ask_slurm, without_ranks
from tfdistr.clusters.worker_process import log_path
from tfdistr.errors import ClusterStartError, WorkerFailedError
from tfdistr.utils.log_tail import Tail
from tfdistr.utils.processes import wait_or_kill
from tfdistr.utils.shared_names import START, remove_names_of_start
from tfdistr.utils.trusted_files import create_private

_LAST_LINES = 10
# The line in which srun names a node that Slurm has lost.
_LOST_NODE = re.compile(r"\s*srun: error: Node failure on (\S+)")
# The line in which srun names a failed task; because of the first one, it has stopped the others.
_LOST_TASK = re.compile(r"\s*srun: error: \S+: task (\d+): (.+)")
# The messages of MPICH and Slurm about stopped ranks, which do not have the reason.
_NOISE = (
    "srun: Job step aborted",
    "srun: launch/slurm:",
    "srun: got SIGCONT",
    "srun: forcing job termination",
)


@dataclass(frozen=True)
class SlurmStep:
    """One srun whose tasks are the workers; each gets the run directory and its index after ``command``."""

    command: Sequence[str]
    run_dir: str | os.PathLike[str]
    environments: Sequence[Mapping[str, str]]
    srun: Sequence[str]


class Ranks(RemoteJob):
    """The workers of a Slurm step: the base of `Srun` and `BatchJob`. ``log`` names srun's output."""

    def __init__(self, step: SlurmStep, log: str) -> None:
        self._folder = Path(step.run_dir).absolute()
        super().__init__(self._folder, range(len(step.environments)), "a Slurm node")
        self._log = log_path(self._folder, 0).with_name(log)
        self._warning = self._folder / guard.WARNING
        self._warning.unlink(missing_ok=True)
        self._log.unlink(missing_ok=True)
        for file in (self._log, *(rank.log for rank in self.workers)):
            file.touch()
        # The values may be secret: they are in no script and no command line, which others see.
        spec = {"command": list(step.command), "environments": [dict(env) for env in step.environments]}
        with create_private(self._folder / guard.SPEC, "w") as private:
            json.dump(spec, private)
        program = [sys.executable, "-I", "-S", guard.__file__, "rank", os.fspath(self._folder)]
        self._command = [*step.srun, *program]
        self._output: Tail | ProgramOutput = Tail(self._log)
        self._lines: list[str] = []
        self._step = ""
        self._stop_requested = False

    def send(self, worker: RemoteWorker, number: signal.Signals) -> None:
        """End all ranks: srun forwards the request."""
        self.end(kill=number == signal.SIGKILL)

    def warn(self, worker: RemoteWorker) -> None:
        """Send SIGTERM to all workers, through a file that their guards check at each heartbeat."""
        self._warning.touch()

    @abstractmethod
    def end(self, *, kill: bool) -> None:
        """Ask the ranks to stop; ``kill`` kills the ranks that were asked before."""

    def _read(self, *, final: bool) -> None:
        """Read the output since the last call."""
        for line in self._output.lines(final=final):
            if message := message_in(line):
                with contextlib.suppress(KeyError, IndexError, TypeError):
                    self._step = message.get("step", self._step)
                    self.workers[message["rank"]].take(message)
            elif line.strip() and not line.startswith(guard.MARK):
                self._lines.append(line)

    def _lose(self, what: str, fix: str | None = None) -> None:
        """Record that the ranks that have not exited are lost; ``what`` describes what has ended, and how."""
        if self.failure is None and self.running:
            self.failure = lost_error(what, self._lines, self.workers, self.running, fix)
        self.end_all()


# What srun says if a step asks for GPUs that its job does not have.
_GPUS = re.compile(r"generic resource|\bgres\b|\bgpus?\b", re.IGNORECASE)
_NO_GPUS = "Ask sbatch or salloc for the GPUs of each node, as in --gres=gpu:2, or pass no `gpus_per_worker`."


def lost_error(
    what: str, lines: Sequence[str], ranks: Sequence[RemoteWorker], lost: Sequence[RemoteWorker],
    fix: str | None = None,
) -> ClusterStartError | WorkerFailedError:  # fmt: skip
    """Return the error for the ranks ``lost``; ``what`` has ended, and how: "srun exited with status 1"."""
    never = [rank for rank in lost if not rank.pid]
    said = quoted_lines(_telling(lines))
    if never:
        return ClusterStartError(
            f"Slurm did not start all {len(ranks)} workers, or the job ended before they did.",
            received=f"{what} without workers {', '.join(str(rank.index) for rank in never)}. "
            f"Its last lines:\n{said}",
            fix=fix
            or (_NO_GPUS if any(map(_GPUS.search, lines)) else None)
            or "See these lines for the reason. Each node must have this Python and tfdistr at the same "
            f"path: {sys.executable}.",
        )
    nodes = [match[1] for line in lines if (match := _LOST_NODE.match(line))]
    silent = max(lost, key=lambda rank: rank.silent_for)
    if silent.silent_for > 3 * guard.HEARTBEAT:
        nodes.append(silent.host)
    there = [rank for rank in lost if rank.host in nodes]
    # If Slurm has ended the whole job, the end of a task is no reason.
    tasks = [match for line in lines if what.startswith("srun ") and (match := _LOST_TASK.match(line))]
    task = tasks[0] if tasks and not there else None
    ended = [rank for rank in lost if task and rank.index == int(task[1])]
    first = next(iter(there or ended), None)
    who = f"Worker{'s' * (len(lost) > 1)} {', '.join(f'{rank.index} on {rank.host}' for rank in lost)}"
    reason = f", after the loss of node {', '.join(dict.fromkeys(nodes))}" if there else ""
    if task and ended:
        reason = f", after the end of worker {task[1]} ({task[2].strip()})"
    return WorkerFailedError(
        f"{who} {'were' if len(lost) > 1 else 'was'} lost: {what}{reason}.\n\nIts last lines:\n{said}",
        worker=first.index if first else None,
        host=first.host if first else "unknown",
        pid=first.pid if first else None,
        log=str(first.log) if first else None,
        fix=fix or "Check whether somebody, or Slurm, has ended the job (sacct, scontrol show job).",
    )


def _telling(lines: Sequence[str]) -> list[str]:
    plain = [line for line in lines if not line.startswith(_NOISE)] or list(lines)
    return plain[-_LAST_LINES:]


def how_ended(status: int) -> str:
    """Describe how a program ended, from its status in a shell."""
    number = -status if status < 0 else status - 128
    if number in set(signal.Signals):
        return f"on {socket.gethostname()} was killed by {signal.Signals(number).name}"
    return f"exited with status {status}"


_REAP = 15.0  # seconds that srun has to exit after the request; then it is killed


class Srun(Ranks):
    """One srun in the allocation of this process."""

    def __init__(self, step: SlurmStep) -> None:
        super().__init__(step, "srun.log")
        # The guard stops srun, and with it all tasks, if this process is killed.
        guarded = [sys.executable, "-I", "-S", guard.__file__, "run", str(os.getpid())]
        self._process = subprocess.Popen(
            [*guarded, *self._command], env=without_ranks(os.environ), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._output = ProgramOutput(self._process.stdout, self._log)
        self._start = step.environments[0].get(START, "")

    def look(self) -> None:
        """Read the output since the last call."""
        ended = self._process.poll()
        self._read(final=ended is not None)
        if ended is not None and self.running:
            self._lose(f"srun {how_ended(ended)}")
            self._cancel()

    def end(self, *, kill: bool) -> None:
        """Ask the ranks to stop; ``kill`` kills the ranks that were asked before."""
        # For the guard of srun, a second signal means that srun kills its step at once.
        if kill or not self._stop_requested:
            self._process.send_signal(signal.SIGINT)
        self._stop_requested = True

    def reap(self) -> None:
        """Wait until srun exits."""
        wait_or_kill(self._process, _REAP)  # the kernel kills srun with its guard
        self.look()
        remove_names_of_start(self._start)  # an interrupted srun may kill the guards before they do so

    def _cancel(self) -> None:
        """Cancel the step of a killed srun: its tasks would continue."""
        if self._step:
            ask_slurm("scancel", f"{os.environ.get('SLURM_JOB_ID', '')}.{self._step}")

"""Workers as the tasks of a job that ``sbatch`` submits."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence

from tfdistr.clusters.guard import after_exit
from tfdistr.clusters.slurm.programs import ENDED, WAITING, State, ask_slurm, state_of_job, without_ranks
from tfdistr.clusters.slurm.ranks import Ranks, SlurmStep, lost_error
from tfdistr.errors import ClusterStartError
from tfdistr.utils.interrupts import uninterrupted

# Poll intervals for Slurm's controller: at first and at the end, and during a long job.
_POLL_INTERVAL, _LONGEST_POLL_INTERVAL = 1.0, 15.0
_TO_END = 10.0  # seconds that a job has to end after its ranks
_GONE = 20.0  # seconds that a cancelled job has to end: a lost node never reports it
# Seconds that the last lines of a job may need to reach this machine.
_SETTLE = 5.0
#: Seconds that a shared file system may need to show what a node has written.
_LATE = 60.0
SCRIPT = "job.sh"
"""The file of the run directory with the script of the job."""


class BatchJob(Ranks):
    """A job of sbatch whose script, which ``write`` returns for its command, runs one srun."""

    def __init__(
        self, step: SlurmStep, write: Callable[[Sequence[str]], str], queue_timeout: float | None
    ) -> None:
        super().__init__(step, "slurm.log")
        self.late = _LATE
        self._queue_timeout = queue_timeout
        script = self._folder / SCRIPT
        script.write_text(write(self._command))
        output = os.fspath(self._log).replace("%", "%%")  # for Slurm, "%" begins a pattern
        self._job = _submit([f"--chdir={os.getcwd()}", f"--output={output}", os.fspath(script)])
        self._submitted = time.monotonic()
        try:
            self._canceller = after_exit("cancel", self._job)
        except BaseException:
            ask_slurm("scancel", self._job)
            raise
        self._state = State("", "")
        self._asked_at = 0.0
        self._runs = self._over = self._killed = self._by_others = False

    def look(self) -> None:
        """Read the output since the last call, and poll Slurm for the state."""
        self._read(final=self._over)
        if self._over or time.monotonic() - self._asked_at < self._pause():
            return
        state = state_of_job(self._job)
        self._asked_at = time.monotonic()
        if state.name and state != self._state:
            self._note(state)
        if state.name in ENDED:
            self._end_of_job(state)
        elif not self._runs and not self._stop_requested:
            self._check_queue()

    def _pause(self) -> float:
        """Return the poll interval for Slurm's controller, which has other users."""
        if self._stop_requested or len(self.running) < len(self.workers):
            return _POLL_INTERVAL
        return min(_LONGEST_POLL_INTERVAL, max(_POLL_INTERVAL, (time.monotonic() - self._submitted) / 20))

    def end(self, *, kill: bool) -> None:
        """Ask the ranks to stop; ``kill`` kills the ranks that were asked before."""
        if not self._stop_requested:
            self._by_others = self._over or state_of_job(self._job).name in (*ENDED, "COMPLETING")
        if self._over:
            return
        if self._runs and not self._stop_requested and not kill:
            ask_slurm("scancel", "--signal=INT", self._job)  # to the guards, which stop their workers quickly
        elif not self._killed and (kill or not self._stop_requested):
            self._killed = True
            ask_slurm("scancel", self._job)
        self._stop_requested = True

    def reap(self) -> None:
        """Wait until Slurm has no process of the job."""
        until = time.monotonic() + (_TO_END if not self._stop_requested else 0.0)
        for limit in (until, until + _GONE):
            while not self._over and time.monotonic() < limit:
                self.look()
                time.sleep(0.1)
            if not self._over and limit == until:
                self._stop_requested = True
                ask_slurm("scancel", self._job)
        if not self._over:
            self._lose(f"Slurm job {self._job} is {self._state}")
        self._canceller.kill()
        self._canceller.wait()

    def _note(self, state: State) -> None:
        self._state = state
        if state.name in WAITING:
            self.notices.append(f"Slurm job {self._job} waits in the queue: {state}.")
        elif state.name == "RUNNING" and not self._runs:
            waited = time.monotonic() - self._submitted
            self.notices.append(f"Slurm job {self._job} runs, after {waited:.0f} s in the queue.")
            self._runs = True
            for rank in self.workers:
                rank.begin()

    def _check_queue(self) -> None:
        limit = self._queue_timeout
        if limit is None or time.monotonic() - self._submitted < limit or self.failure is not None:
            for rank in self.workers:
                rank.begin()  # they have not started
            return
        self.fail(
            ClusterStartError(
                f"The job did not leave the Slurm queue within {limit:g} s.",
                received=f"job {self._job}, which waited: {self._state}; it was cancelled",
                fix="Pass a larger `start_timeout` or none, request less, or pass another `partition`.",
            )
        )
        ask_slurm("scancel", self._job)
        self.end_all()

    def _end_of_job(self, state: State) -> None:
        """Record the workers that are lost with an ended job."""
        until = time.monotonic() + _SETTLE
        while self.running and time.monotonic() < until:
            self._read(final=False)
            time.sleep(0.05)
        self._read(final=True)
        self._over = True
        what, fix = f"Slurm job {self._job} ended: {state}", _FIXES.get(state.name)
        by_others = self._by_others or (state.name == "CANCELLED" and not self._stop_requested)
        ended = [rank for rank in self.workers if rank.exit_code != 0]
        if ended and (by_others or state.name in _FIXES):
            # Slurm has killed the workers: their own exit statuses only show the signal.
            self.fail(lost_error(what, self._lines, self.workers, ended, fix))
        self._lose(what, fix)


_FIXES = {
    "TIMEOUT": "Pass a longer `time`. With checkpoint_every, the same call with resume=True continues from "
    "the last checkpoint.",
    "PREEMPTED": "Pass failures=on_failure(max_restarts=3) and `checkpoint_every`: the job is then "
    "resubmitted, and continues from its last checkpoint.",
    "OUT_OF_MEMORY": 'Ask for more memory, as in options={"mem-per-cpu": "8G"}, or pass smaller batches.',
}


def _submit(arguments: Sequence[str]) -> str:
    """Submit a job, and return its number. If this is interrupted, the job is cancelled."""
    process: subprocess.Popen[str] | None = None
    try:
        with uninterrupted():  # until the process is known
            process = subprocess.Popen(
                ["sbatch", "--parsable", *arguments], env=without_ranks(os.environ), text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C of a terminal does not reach it
            )  # fmt: skip
        output, error = process.communicate()
    except BaseException:
        if process is not None:
            output, _ = process.communicate()
            if process.returncode == 0:
                ask_slurm("scancel", output.strip().partition(";")[0])
        raise
    if process.returncode != 0:
        raise ClusterStartError(
            "Slurm has rejected the job.",
            received=_refusal(error or output),
            fix=f"Correct the arguments of slurm_cluster(). The script is {arguments[-1]}.",
        )
    return output.strip().partition(";")[0]


def _refusal(text: str) -> str:
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in text.strip().splitlines()]
    return "; ".join(line for line in lines if line) or "no answer"

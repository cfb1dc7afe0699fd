"""Workers as the tasks of one ``srun``, in the allocation of this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tfdistr.clusters import rank_guard
from tfdistr.clusters.program_output import ProgramOutput
from tfdistr.clusters.slurm.programs import ask, without_ranks
from tfdistr.clusters.slurm.ranks import Ranks, SlurmStep, how_ended
from tfdistr.utils.processes import wait_or_kill

_REAP = 15.0  # seconds that srun has to exit after the request; then it is killed


class Srun(Ranks):
    """One srun in the allocation of this process.

    Args:
        step: The step.
    """

    def __init__(self, step: SlurmStep) -> None:
        super().__init__(step, "srun.log")
        # The guard stops srun, and with it all tasks, if this process is killed.
        guarded = [sys.executable, "-I", "-S", rank_guard.__file__, "run", str(os.getpid())]
        self._process = subprocess.Popen(
            [*guarded, *self._command], env=without_ranks(os.environ), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._output = ProgramOutput(self._process.stdout, self._log)

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

    def _cancel(self) -> None:
        """Cancel the step of a killed srun: its tasks would continue."""
        if self._step:
            ask("scancel", f"{os.environ.get('SLURM_JOB_ID', '')}.{self._step}")

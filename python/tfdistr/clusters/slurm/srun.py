"""Workers as the tasks of one ``srun``, in the allocation of this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tfdistr.clusters import rank_guard
from tfdistr.clusters.program_output import ProgramOutput
from tfdistr.clusters.slurm.programs import ask, without_ranks
from tfdistr.clusters.slurm.ranks import Ranks, how_ended

_REAP = 15.0  # seconds that srun has to end after the request; then it is killed


class Srun(Ranks):
    """One srun and its tasks.

    Args:
        command: The command of a worker; the run directory and the index are added.
        run_dir: The directory of the run, which all nodes see.
        environments: Environment variables for each worker.
        line: The command of srun.
    """

    def __init__(
        self,
        command: Sequence[str],
        run_dir: str | os.PathLike[str],
        environments: Sequence[Mapping[str, str]],
        line: Sequence[str],
    ) -> None:
        super().__init__(command, run_dir, environments, "srun.log")
        # The guard ends srun, and with it all tasks, if this process is killed.
        guarded = [sys.executable, "-I", "-S", rank_guard.__file__, "run", str(os.getpid())]
        self._output = ProgramOutput(self._log)
        with os.fdopen(self._output.writer, "wb") as output:
            self._process = subprocess.Popen(
                [*guarded, *line, *self.guard], env=without_ranks(os.environ), stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._asked = False

    def look(self) -> None:
        """Read the output since the last call."""
        ended = self._process.poll()
        self._read(final=ended is not None)
        if ended is not None and any(rank.exit_code is None for rank in self.ranks):
            self._lose(f"srun {how_ended(ended)}")
            self._cancel()

    def end(self, *, kill: bool) -> None:
        """Ask the ranks to end; ``kill`` ends at once the ranks that were asked before."""
        # For the guard of srun, a second signal means that srun ends its step at once.
        if kill or not self._asked:
            self._process.send_signal(signal.SIGINT)
        self._asked = True

    def reap(self) -> None:
        """Wait for the end of srun."""
        try:
            self._process.wait(_REAP)
        except subprocess.TimeoutExpired:
            self._process.kill()  # then the kernel kills srun
            self._process.wait()
        self.look()

    def _cancel(self) -> None:
        """Cancel the step of an srun that was killed: its tasks run on otherwise."""
        step = next((rank.step for rank in self.ranks if rank.step), "")
        if step:
            ask("scancel", f"{os.environ.get('SLURM_JOB_ID', '')}.{step}")

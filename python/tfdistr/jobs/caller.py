"""The differences between calls of ``distributed_fit()`` from different languages."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tfdistr.clusters.local.local_cluster import WORKER
from tfdistr.r.functions import RFunction, environment_of_r_worker, r_worker_command
from tfdistr.r.values import seed_of_r
from tfdistr.schemas.events import Event
from tfdistr.training.job import Job
from tfdistr.utils.function_files import FunctionByName, PythonFunction
from tfdistr.utils.interrupts import defer_sigint


@dataclass(frozen=True)
class Caller:
    """The calling language.

    Args:
        on_event: Called with every event of a job, on the calling thread; see `tfdistr.supervision.events`.
        of_r: Whether the workers of a job without functions of Python files are R processes.
        before_start: Called with the seed of a job, as R has it, and with its run directory, before workers
            are started there.
        on_seed: Called with the seed, as R has it, of a job that this process trains, before the functions of
            the job.
        seed: The seed of a job for which the user gives none; None if it is drawn here.
        build: Builds the trained model in this process; None for the job's own function.
    """

    on_event: Callable[[Event], object] = lambda event: None
    of_r: bool = False
    before_start: Callable[[int, str], object] = lambda seed, run_dir: None
    on_seed: Callable[[int], object] = lambda seed: None
    build: Callable[[], object] | None = None
    seed: int | None = None

    @contextlib.contextmanager
    def workers(self, job: Job, run_dir: Path) -> Iterator[WorkerProgram]:
        """Prepare a run directory for the workers of a job, and yield their program.

        R functions of a file need R workers. A Python function of a file needs only Python workers, if no
        other part of the job is an R function.
        """
        r_functions = any(isinstance(part, FunctionByName | RFunction) for part in job.functions)
        if not r_functions and isinstance(job.model, PythonFunction):
            # The workers of an R session find the core in the R package.
            path = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]
            yield WorkerProgram(WORKER, {"PYTHONPATH": os.pathsep.join(filter(None, path))})
            return
        defer_sigint(self.before_start)(seed_of_r(job.seed), str(run_dir))
        if r_functions or self.of_r:
            with _scratch(run_dir) as scratch:
                yield WorkerProgram(r_worker_command(), environment_of_r_worker(scratch))
        else:
            yield WorkerProgram(WORKER, {})


class WorkerProgram(NamedTuple):
    """The program of a worker.

    Attributes:
        command: The program and its arguments; the run directory and the worker's index are appended.
        env: Its environment variables; the user's variables take precedence.
    """

    command: Sequence[str]
    env: Mapping[str, str]


@contextlib.contextmanager
def _scratch(run_dir: Path) -> Iterator[Path]:
    """Make a folder for the temporary files of R workers, and remove it at the end."""
    if " " in str(run_dir):  # R 4.5 takes no folder with a space in its path
        with tempfile.TemporaryDirectory(prefix="tfdistr-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    scratch = run_dir / "tmp"
    scratch.mkdir(mode=0o700, exist_ok=True)  # a run that continues has it already
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)

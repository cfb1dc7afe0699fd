"""The differences between calls of ``distributed_fit()`` from different languages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfdistr.clusters.local.cluster import WORKER
from tfdistr.jobs.run_dir import temporary_run_dir
from tfdistr.r.functions import RFunction, environment_of_r_worker, r_worker_command
from tfdistr.training.job import Job
from tfdistr.utils.function_files import FunctionByName, PythonFunction


@dataclass(frozen=True)
class Caller:
    """The calling language.

    Args:
        on_event: Called with every event of a job, on the calling thread; see `tfdistr.supervision.events`.
        command: The program of a worker; the run directory and the worker's index are appended.
        before_start: Called with the seed of a job and its run directory before workers are started there. It
            returns environment variables for the workers; the user's variables take precedence.
        after_end: Called with the run directory when the workers of a job have ended.
        on_seed: Called with the seed of a job that this process trains, before the functions of the job. It
            gets seeds as R has them: a float above the largest integer of R.
        build: Builds the trained model in this process; None for the job's own function.
    """

    on_event: Callable[[dict[str, Any]], object] = lambda event: None
    command: Sequence[str] = WORKER
    before_start: Callable[[int, str], Mapping[str, str]] = lambda seed, run_dir: {}
    after_end: Callable[[str], object] = lambda run_dir: None
    on_seed: Callable[[int], object] = lambda seed: None
    build: Callable[[], Any] | None = None

    def for_job(self, job: Job) -> Caller:
        """The caller with the workers that a job needs.

        R functions of a file need R workers. A Python function of a file needs only Python workers, if no
        other part of the job is a function of R.
        """
        of_r = any(isinstance(part, FunctionByName | RFunction) for part in job.functions)
        if of_r and self.command == WORKER:
            return replace(
                self, command=r_worker_command(), before_start=_before_r_workers, after_end=_after_r_workers
            )
        if not of_r and isinstance(job.model, PythonFunction):
            return replace(self, command=WORKER, before_start=_before_python_workers)
        return self


def _before_r_workers(seed: int, run_dir: str) -> Mapping[str, str]:
    # R 4.5 takes no folder with a space in its path.
    scratch = temporary_run_dir() if " " in run_dir else Path(run_dir, "tmp")
    scratch.mkdir(mode=0o700, exist_ok=True)  # a run that continues has it already
    return environment_of_r_worker(scratch)


def _after_r_workers(run_dir: str) -> None:
    shutil.rmtree(Path(run_dir, "tmp"), ignore_errors=True)


def _before_python_workers(seed: int, run_dir: str) -> Mapping[str, str]:
    """The workers of an R session find the core in the R package."""
    folder = str(Path(__file__).parents[2])
    return {"PYTHONPATH": os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))}

"""Running a script as the workers of a cluster."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import attrs

from tfdistr.checkpoint.preemption import Preemption
from tfdistr.cli.script_options import Script, make_log_folder
from tfdistr.cli.script_worker import RSCRIPT
from tfdistr.clusters.backend import Backend, write_backend
from tfdistr.clusters.cluster import Cluster
from tfdistr.clusters.worker_process import Worker, log_path
from tfdistr.errors import ArgumentError, JobStoppedError, WorkerFailedError
from tfdistr.jobs.run_dir import keep_logs, keep_run_dir, open_run_dir, remove_run_dir
from tfdistr.schemas.events import Event, event_now
from tfdistr.supervision.supervisor import WorkerStatus, run_workers

OnEvent = Callable[[Event], object]

# The tfdistr of this process: R carries its own, which its Python environment need not have.
_MAIN = """\
import sys
sys.path.insert(0, {folder!r})
from tfdistr.cli.script_worker import main
del sys.path[0]
main()
"""
#: The program of a worker; the script and its arguments follow.
WORKER = (sys.executable, "-P", "-c", _MAIN.format(folder=str(Path(__file__).parents[2])))


def run_script(script: Script, on_event: OnEvent) -> list[WorkerStatus]:
    """Run a script as workers, wait for all of them, and leave none behind; SIGTERM is passed on to them."""
    script = _with_rscript(script)
    cluster = script.cluster(follow=True, warm=False)
    backend = cluster.backend(script.communication)
    with open_run_dir(script.run_dir, cluster) as run_dir:
        try:
            if script.log_dir is not None:
                make_log_folder(script.log_dir, link=log_path(run_dir, 0).parent)
            write_backend(backend, run_dir)
            statuses = _with_restarts(script, backend, run_dir, on_event)
        except BaseException:
            keep_run_dir(run_dir)  # its logs say more than the error
            raise
    if script.run_dir is None:
        remove_run_dir(run_dir)
    return statuses


def _with_restarts(script: Script, backend: Backend, run_dir: Path, on_event: OnEvent) -> list[WorkerStatus]:
    cluster: Any = _Signalled(backend.cluster)
    command = [*WORKER, str(Path(script.script).absolute()), *script.arguments]
    with Preemption(cluster.pass_on_sigterm) as preemption:
        for attempt in count(1):
            try:
                return run_workers(cluster, command, run_dir, on_event)
            except JobStoppedError as stopped:
                fix = "Run it again: a distributed_fit() with resume=True continues at its checkpoint."
                raise JobStoppedError(stopped.message, fix=fix) from None
            except WorkerFailedError as error:
                if preemption.signalled:
                    raise JobStoppedError(
                        "The script was told to end (SIGTERM), and ended without a checkpoint.",
                        received=error.message.partition("\n")[0],
                        fix="Train with checkpoint_every= and resume=True, so that it continues later.",
                    ) from error
                if attempt > script.max_restarts:
                    raise
                keep_logs(run_dir, cluster.workers, f"failed-{attempt}")
                reason = error.message.partition("\n")[0].rstrip(".")
                on_event(event_now("restart", error.worker, reason=reason))
    raise AssertionError  # count() has no end


class _Signalled:
    """A cluster whose running workers get the SIGTERM of this process."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._processes: Sequence[Worker] = ()

    def __getattr__(self, name: str) -> object:
        return getattr(self._cluster, name)

    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> Sequence[Worker]:
        """Start every worker once."""
        self._processes = self._cluster.start(command, run_dir)
        return self._processes

    def pass_on_sigterm(self) -> None:
        """Send SIGTERM to each worker."""
        for process in self._processes:
            if process.exit_code is None:
                process.terminate()


def _with_rscript(script: Script) -> Script:
    """The script with the program that runs it, if it is a script of R."""
    if script.language != "r":
        return script
    program = script.rscript or "Rscript"
    found = shutil.which(program)
    if found is None:
        raise ArgumentError(
            "A script of R needs R.",
            received=f"no {program} on PATH",
            fix="Install R, or put the folder of Rscript on PATH.",
        )
    return attrs.evolve(script, env={**script.env, RSCRIPT: found})

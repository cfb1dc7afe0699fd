"""The process of one worker: it reads the job, trains, reports, and exits together with its peers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdistr.collectives.mpi.world import finish, start_early
from tfdistr.errors import STOPPED_STATUS, JobStoppedError
from tfdistr.rendezvous.peer_failure import is_peer_failure, report
from tfdistr.supervision.reporting import Foreign, ProcessOfJob, process_of_job
from tfdistr.training.step_times import note_call
from tfdistr.training.watchdog import add_failure_listener
from tfdistr.utils.trackers import end_runs

if TYPE_CHECKING:
    from tfdistr.strategies.worker_strategy import WorkerStrategy


def run_worker(
    run_dir: str, index: int, functions: Mapping[str, object] | None = None, *, foreign: Foreign | None = None
) -> int:
    """Train as worker ``index`` of a job and return the exit status; ``foreign`` reads errors of R."""
    note_call()
    with process_of_job(run_dir, index) as process:
        return _train(process, Path(run_dir), index, functions, foreign)


def _train(
    process: ProcessOfJob, run_dir: Path, index: int, functions: Mapping[str, Any] | None, foreign: Any
) -> int:
    joined: list[WorkerStrategy] = []
    events = process.events
    try:
        start_early()
        from tfdistr.jobs.strategies import STRATEGIES
        from tfdistr.jobs.strategies.base import WorkerStart
        from tfdistr.training.job import Job

        def last_words(error: BaseException, text: str) -> None:
            events.write(
                "failed", error_type=type(error).__name__, message=str(error), traceback=None,
                language="python", peer=False,
            )  # fmt: skip

        add_failure_listener(last_words)
        name, options = Job.load_strategy(run_dir, functions)
        start = WorkerStart(run_dir, options, functions, events.write, joined.append)
        trained = STRATEGIES[name].train_in_worker(start)
        if all(strategy.is_chief for strategy in joined):
            from tfdistr.jobs.result_files import save_training

            save_training(trained, run_dir)
        end_runs("FINISHED")
        process.done(trained.times)
        _leave(joined)
        return 0
    except JobStoppedError as stopped:  # all workers raise it after the same step
        end_runs("KILLED")
        events.write("stopped", message=stopped.message, fix=stopped.fix)
        _leave(joined)
        return STOPPED_STATUS
    except BaseException as error:
        peer = is_peer_failure(error)
        end_runs("FAILED", seconds=5)  # the launcher stops all workers once it learns of the failure
        process.failed(error, peer=peer, foreign=foreign)
        for strategy in joined if not peer else ():
            strategy.report_failure(report(index, error))
        return 1


def _leave(joined: list[WorkerStrategy]) -> None:
    for strategy in joined:
        if strategy.leave():
            finish()


def main() -> None:
    """Run a Python worker: ``python -m tfdistr.jobs.worker RUN_DIR INDEX``."""
    status = run_worker(sys.argv[1], int(sys.argv[2]))
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the user's code has closed it
            output.flush()
    # Skip the interpreter's shutdown: TensorFlow's threads may abort there if a peer has already left.
    os._exit(status)


if __name__ == "__main__":
    main()

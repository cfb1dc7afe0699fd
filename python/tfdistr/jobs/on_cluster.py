"""A job on workers that tfdistr starts, watches, restarts and stops."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tfdistr.checkpoint.folder import STOP, checkpoint_folder
from tfdistr.checkpoint.lock import check_lock, lock_id, lock_variable
from tfdistr.checkpoint.preemption import Preemption, stopped
from tfdistr.clusters.backend import Backend, write_backend
from tfdistr.clusters.cluster import Cluster
from tfdistr.data.source import form_of
from tfdistr.errors import (
    CheckpointError,
    ClusterStartError,
    JobStoppedError,
    TfdistrError,
    WorkerFailedError,
)
from tfdistr.jobs.caller import Caller, WorkerProgram
from tfdistr.jobs.documents import write_job
from tfdistr.jobs.outcome import Outcome
from tfdistr.jobs.result_files import builder, load_history, load_state, load_ways
from tfdistr.jobs.resume import Restarts, note_result, result_of_run
from tfdistr.jobs.run_dir import keep_logs, keep_run_dir, remove_temporary
from tfdistr.jobs.summary import Summary
from tfdistr.r.functions import RFunction
from tfdistr.supervision.supervisor import WorkerStatus, run_workers
from tfdistr.training.given_model import comparison_of
from tfdistr.training.job import Job
from tfdistr.training.model_state import LazyModel
from tfdistr.utils.disk import writing

if TYPE_CHECKING:
    from tfdistr.jobs.stored_run import StoredRun
    from tfdistr.jobs.strategies.base import Strategy

log = logging.getLogger("tfdistr")


def fit_on_cluster(
    job: Job,
    strategy: type[Strategy],
    cluster: Cluster,
    caller: Caller,
    run_dir: Path,
    stored: StoredRun | None = None,
) -> Outcome:
    """Start the workers of ``cluster``, wait for them, and collect the result.

    Args:
        run_dir: An empty folder, or the folder of the run to resume.
        stored: The run in a store whose folder ``run_dir`` is, if the user named a store.
    """
    try:
        with caller.workers(job, run_dir) as program:
            return _fit(job, strategy, cluster, caller, program, run_dir, stored)
    finally:
        Job.remove(run_dir)


def _fit(
    job: Job,
    strategy: type[Strategy],
    cluster: Cluster,
    caller: Caller,
    program: WorkerProgram,
    run_dir: Path,
    stored: StoredRun | None,
) -> Outcome:
    env = {**program.env, **lock_variable(run_dir)}
    cluster = cluster.for_job(env)
    recovery = job.recovery
    summary = strategy.summary(caller.on_event)
    backend = strategy.backend(cluster, job.communication)
    job = attrs.evolve(job, communication=backend.communication)
    complete = result_of_run(run_dir, job.epochs) if recovery.resume else None
    if complete is not None:
        summary.recall(complete)
        result = _result(job, complete["workers"], cluster, summary, caller, run_dir)
        return stored.note(result) if stored else result
    job.save(run_dir, strategy.arguments(job))
    write_job(job, run_dir, cluster.workers)
    write_backend(backend, run_dir)
    if stored:
        stored.begin(summary)
    restarts = Restarts(run_dir, recovery.max_restarts)
    preemption = _preemption(run_dir, saves=recovery.every is not None)

    on_event = _events(summary, stored, preemption)
    with preemption:
        backend, statuses = _with_restarts(
            backend, program.command, run_dir, on_event, restarts, job, preemption,
            elastic=cluster.fewest is not None,
        )  # fmt: skip
        result = _result(job, _rows(statuses, backend), cluster, summary, caller, run_dir)
        result = _record_result(result, run_dir, stored)
    if stored:
        stored.end()  # a late SIGTERM must not kill this process before
    preemption.pass_on()
    return result


def _preemption(run_dir: Path, *, saves: bool) -> Preemption:
    """Return what handles SIGTERM: a job with checkpoints saves, another one leaves no temporary folder."""
    if saves:
        return Preemption(lambda: _ask_to_stop(run_dir))

    def end() -> None:
        remove_temporary()
        preemption.release()

    preemption = Preemption(end, active=signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
    return preemption


def _events(
    summary: Summary, stored: StoredRun | None, preemption: Preemption
) -> Callable[[dict[str, Any]], None]:
    """Return the functions that handle the events of a job."""

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "unsaved":
            preemption.release()  # no worker would handle the signal
        summary(event)
        if stored:
            stored.on_event(event)

    return on_event


def _result(
    job: Job,
    rows: list[dict[str, Any]],
    cluster: Cluster,
    summary: Summary,
    caller: Caller,
    run_dir: Path,
) -> Outcome:
    """Return the result of a job whose processes have exited with the states ``rows``."""
    workers = len(rows) if job.recovery.min_workers else cluster.workers
    numbers = {**load_ways(run_dir), "workers": workers}
    # Only an R function may be one that this process cannot call; else the caller's own model is the one.
    build = caller.build or (builder(run_dir) if isinstance(job.model, RFunction) else None)
    return Outcome(
        history=load_history(run_dir),
        params={**job.params, **comparison_of(job.model), **numbers, **summary.params(job, cluster)},
        workers=[summary.row(row) for row in rows],
        run_dir=str(run_dir),
        trained=LazyModel(job.model, lambda: load_state(run_dir), build, settings=job.settings),
        form=form_of(job.data),
    )


def _with_restarts(
    backend: Backend,
    command: Sequence[str],
    run_dir: Path,
    on_event: Callable[[dict[str, Any]], None],
    restarts: Restarts,
    job: Job,
    preemption: Preemption,
    *,
    elastic: bool,
) -> tuple[Backend, list[WorkerStatus]]:
    """Run the workers. After a failure, restart all workers, or all but the failed worker.

    If the number of workers may change, the job adds lost workers again at its next checkpoint.
    """
    whole, stop = backend, checkpoint_folder(run_dir) / STOP

    def fewer_than_wanted() -> bool:
        return elastic and backend is not whole

    def on_checkpoint(event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint" and fewer_than_wanted() and event["epoch"] < job.epochs:
            _ask_to_stop(run_dir)
        on_event(event)

    for attempt in count(1):
        check_lock(run_dir, lock_id(run_dir))
        try:
            return backend, run_workers(
                backend.cluster, command, run_dir, on_checkpoint, heartbeat_timeout=job.heartbeat_timeout
            )
        except JobStoppedError:
            if preemption.signalled or not fewer_than_wanted():
                keep_run_dir(run_dir)
                raise
            stop.unlink(missing_ok=True)
            keep_logs(run_dir, backend.cluster.workers, f"stopped-{attempt}")
            backend = whole
            message = f"Workers are available again: the job continues with {whole.cluster.workers} workers."
            on_event({"event": "warning", "message": message, "worker": None, "time": time.time()})
        except (WorkerFailedError, ClusterStartError) as error:
            if preemption.signalled:  # some workers may have received it before they could save
                keep_run_dir(run_dir)
                raise stopped(restarts.position, run_dir) from error
            started = attempt > 1 or isinstance(error, WorkerFailedError)  # otherwise the job has never run
            again, fewer = started and restarts.another(), None
            if started and not again and error.worker is not None and job.recovery.min_workers is not None:
                fewer = backend.cluster.without(error.worker, job.recovery.min_workers)
            if not again and fewer is None:
                keep_run_dir(run_dir)  # its logs have more details than the error
                raise
            stop.unlink(missing_ok=True)  # a stopped server writes it
            keep_logs(run_dir, backend.cluster.workers, f"failed-{attempt}")
            reason = error.message.partition("\n")[0].rstrip(".")
            of_event = {"worker": error.worker, "time": time.time()}
            on_event({"event": "restart", "reason": reason, **of_event})
            if fewer is not None:
                lost = f"worker {error.worker} on {error.host}"
                message = f"The job continues without {lost}, with {fewer.workers} of its workers."
                on_event({"event": "warning", "message": message, **of_event})
                backend = replace(backend, cluster=fewer)
                restarts.reset()
        except TfdistrError:
            keep_run_dir(run_dir)
            raise
    raise AssertionError  # count() has no end


def _ask_to_stop(run_dir: Path) -> None:
    """Make the workers save and exit."""
    path = checkpoint_folder(run_dir) / STOP
    with writing(path, "The request to save and end"):
        path.touch()


def _record_result(result: Outcome, run_dir: Path, stored: StoredRun | None) -> Outcome:
    """Record that a job is complete; return its result for the user."""
    if stored:
        return stored.note(result)
    try:
        note_result(run_dir, result)
    except CheckpointError as error:  # the caller has the result, so that it is not lost
        log.warning("The result is complete, but its document could not be written. %s", error)
    return result


def _rows(statuses: Sequence[WorkerStatus], backend: Backend) -> list[dict[str, Any]]:
    """Return the final state of each process, with its task if the processes have different tasks."""
    rows = [{k: v for k, v in vars(status).items() if (k, v) != ("times", None)} for status in statuses]
    tasks = backend.cluster.tasks
    return [{**row, "task": str(task)} for row, task in zip(rows, tasks, strict=True)] if tasks else rows

"""A job on workers that tfdistr starts, watches, restarts and stops."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tfdistr.checkpoint.lock import lock_variable
from tfdistr.checkpoint.preemption import Preemption
from tfdistr.clusters.backend import Backend, write_backend
from tfdistr.clusters.cluster import Cluster
from tfdistr.errors import CheckpointError
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.documents import write_job
from tfdistr.jobs.outcome import Outcome
from tfdistr.jobs.restarts import Attempts, ask_to_stop
from tfdistr.jobs.result_files import builder, load_state, load_training
from tfdistr.jobs.resume import note_result, result_of_run
from tfdistr.jobs.run_dir import remove_temporary
from tfdistr.jobs.summary import Summary
from tfdistr.r.functions import RFunction
from tfdistr.schemas.events import Event
from tfdistr.supervision.supervisor import WorkerStatus
from tfdistr.training.in_session import Session
from tfdistr.training.job import Job
from tfdistr.training.model_copies.given_model import comparison_of
from tfdistr.training.model_state import LazyModel

if TYPE_CHECKING:
    from tfdistr.jobs.stored_run import StoredRun
    from tfdistr.jobs.strategies.base import Strategy

log = logging.getLogger("tfdistr")


def fit_on_cluster(
    job: Job,
    strategy: type[Strategy],
    backend: Backend,
    caller: Caller,
    run_dir: Path,
    stored: StoredRun | None = None,
) -> Outcome:
    """Start the workers of a cluster, wait for them, and collect the result."""
    with contextlib.ExitStack() as ends:
        ends.callback(Job.remove, run_dir)
        program = ends.enter_context(caller.workers(job, run_dir))
        env = {**program.env, **lock_variable(run_dir)}
        cluster = backend.cluster.for_job(env)
        backend = replace(backend, cluster=strategy.processes(cluster))
        summary = strategy.summary(caller.on_event)
        job = attrs.evolve(job, communication=backend.communication)
        complete = result_of_run(run_dir, job.epochs) if job.recovery.resume else None
        if complete is not None:
            summary.recall(complete)
            result = _result(job, complete["workers"], cluster, summary, caller, run_dir)
            return stored.note(result) if stored else result
        job.save(run_dir, strategy.arguments(job))
        write_job(job, run_dir, cluster.workers)
        write_backend(backend, run_dir)
        if stored:
            stored.begin(summary)
        preemption = _preemption(run_dir, saves=job.recovery.every is not None)
        session = Session(job.callbacks, run_dir)
        on_event = _events(summary, stored, preemption, session)
        with preemption:
            attempts = Attempts(job, backend, run_dir, on_event, preemption)
            statuses = session.answer_during(lambda: attempts.run(program.command))
            rows = _rows(statuses, attempts.backend)
            result = _result(job, rows, cluster, summary, caller, run_dir)
            result = _record_result(result, run_dir, stored)
        if stored:
            stored.end()  # a late SIGTERM must not kill this process before
        preemption.pass_on()
        return result


def _preemption(run_dir: Path, *, saves: bool) -> Preemption:
    """Return what handles SIGTERM: a job with checkpoints saves, another one leaves no temporary folder."""
    if saves:
        return Preemption(lambda: ask_to_stop(run_dir))

    def end() -> None:
        remove_temporary()
        preemption.release()

    preemption = Preemption(end, active=signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
    return preemption


def _events(
    summary: Summary, stored: StoredRun | None, preemption: Preemption, session: Session
) -> Callable[[Event], None]:
    """Return the functions that handle the events of a job."""

    def on_event(event: Event) -> None:
        if event["event"] == "unsaved":
            preemption.release()  # no worker would handle the signal
        summary(event)
        if stored:
            stored.on_event(event)
        session.on_event(event)

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
    trained = load_training(run_dir)
    numbers = {name: trained[name] for name in ("communication", "tuning", "differences", "xla")}
    numbers["workers"] = len(rows) if job.recovery.min_workers else cluster.workers
    # Only an R function may be one that this process cannot call; else the caller's own model is the one.
    build = caller.build or (builder(run_dir) if isinstance(job.model, RFunction) else None)
    return Outcome(
        history=trained["history"],
        params={**job.params, **comparison_of(job.model), **numbers, **summary.params(job, cluster)},
        workers=[summary.row(row) for row in rows],
        run_dir=str(run_dir),
        trained=LazyModel(job.model, lambda: load_state(run_dir), build, settings=job.settings),
        form=trained["form"],
    )


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

"""A job on workers that are started for it, watched, started again, and ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from tfdistr.errors import ClusterStartError, TfdistrError, WorkerFailedError
from tfdistr.job import Job
from tfdistr.launch.carrier import Carrier, carrier_path, choose_carrier, without_worker
from tfdistr.launch.local import LocalCluster
from tfdistr.launch.mpi import MpiCluster
from tfdistr.launch.parameter_servers import LocalServers
from tfdistr.launch.process import log_path
from tfdistr.launch.supervise import WorkerStatus, run_workers
from tfdistr.parameter_server.launch import WorkerSteps, check_job
from tfdistr.recovery.run import STOP, Restarts, checkpoint_folder, note_result, workers_of_result
from tfdistr.recovery.told_to_end import ToldToEnd, stopped
from tfdistr.result import FitResult, load_communication, load_history, load_model
from tfdistr.run_dir import keep_run_dir
from tfdistr.strategies import STRATEGIES


def fit_on_cluster(
    job: Job,
    cluster: LocalCluster | MpiCluster,
    command: Sequence[str],
    run_dir: Path,
    on_event: Callable[[dict[str, Any]], None],
    *,
    build: Callable[[], Any] | None = None,
) -> FitResult:
    """Start the workers of ``cluster`` with ``command``, wait for them, and gather the result.

    Args:
        job: What to train.
        cluster: Where.
        command: Program and first arguments of a worker; run directory and index are appended.
        run_dir: An empty folder, or that of the run that goes on.
        on_event: Called on this thread with every event of the job.
        build: Builds the model in this process; the job's own function by default.
    """
    recovery, kind = job.recovery, STRATEGIES[job.strategy]
    if kind.servers:
        check_job(job)
        on_event = steps = WorkerSteps(on_event)
    if kind.servers or kind.client:
        assert isinstance(cluster, LocalCluster)
        carrier = Carrier("auto", LocalServers(cluster), "the chief has its servers compute")
    else:
        carrier = choose_carrier(cluster, job.communication)
    job = replace(job, communication=carrier.communication, start_timeout=cluster.start_timeout)
    rows = workers_of_result(run_dir, job.epochs) if recovery.resume else None
    if rows is None:
        job.save(run_dir)
        carrier_path(run_dir).write_text(str(carrier))
        restarts = Restarts(run_dir, recovery.max_restarts)
        stop = checkpoint_folder(run_dir) / STOP
        told = ToldToEnd(stop.touch, active=recovery.every is not None)

        def unless_unsaved(event: dict[str, Any]) -> None:
            if event["event"] == "unsaved":
                told.release()  # nobody would act on it
            on_event(event)

        with told:
            carrier, statuses = _with_restarts(carrier, command, run_dir, unless_unsaved, restarts, job, told)
            rows = _rows(statuses, carrier.cluster)
            if recovery.every is not None:
                note_result(run_dir, job.epochs, rows)
        told.pass_on()
    workers = len(rows) if recovery.min_workers else cluster.workers
    params = {**job.params, "communication": load_communication(run_dir), "workers": workers}
    if kind.servers:
        params |= {**steps.params(job), "ps": getattr(cluster, "ps", 0)}
        rows = [row | steps.of(row["task"]) for row in rows]
    return FitResult(
        history=load_history(run_dir),
        params=params,
        workers=rows,
        run_dir=str(run_dir),
        _make_model=lambda: load_model(build or job.model, run_dir),
    )


def _with_restarts(
    carrier: Carrier,
    command: Sequence[str],
    run_dir: Path,
    on_event: Callable[[dict[str, Any]], None],
    restarts: Restarts,
    job: Job,
    told: ToldToEnd,
) -> tuple[Carrier, list[WorkerStatus]]:
    """Run the workers, and start all of them again after a failure, or those that are left."""
    for attempt in count(1):
        try:
            return carrier, run_workers(
                carrier.cluster, command, run_dir, on_event, heartbeat_timeout=job.heartbeat_timeout
            )
        except (WorkerFailedError, ClusterStartError) as error:
            if told.told:  # some may have got it before they could save
                keep_run_dir(run_dir)
                raise stopped(restarts.position, run_dir) from error
            started = attempt > 1 or isinstance(error, WorkerFailedError)  # else it never ran, and never may
            again, fewer = started and restarts.another(), None
            if started and not again and error.worker is not None and job.recovery.min_workers is not None:
                fewer = without_worker(carrier.cluster, error.worker, job.recovery.min_workers)
            if not again and fewer is None:
                keep_run_dir(run_dir)  # its logs say more
                raise
            for index in range(carrier.cluster.workers):
                log = log_path(run_dir, index)
                if log.exists():
                    log.replace(f"{log}.failed-{attempt}")
            reason = error.message.partition("\n")[0].rstrip(".")
            of_event = {"worker": error.worker, "time": time.time()}
            on_event({"event": "restart", "reason": reason, **of_event})
            if fewer is not None:
                lost = f"worker {error.worker} on {error.host}"
                message = f"The job goes on without {lost}, with {fewer.workers} of its workers."
                on_event({"event": "warning", "message": message, **of_event})
                carrier = replace(carrier, cluster=fewer)
                restarts.begin_anew()
        except TfdistrError:
            keep_run_dir(run_dir)
            raise
    raise AssertionError  # count() has no end


def _rows(statuses: Sequence[WorkerStatus], cluster: Any) -> list[dict[str, Any]]:
    """What became of each process; with its task where the processes have different ones."""
    rows = [vars(status) for status in statuses]
    tasks = getattr(cluster, "tasks", None)
    return [{**row, "task": str(task)} for row, task in zip(rows, tasks, strict=True)] if tasks else rows

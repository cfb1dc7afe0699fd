"""A job in this process: alone, or as a task of a cluster whose processes a user starts by hand."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from tfdistr.checkpoint.object_store import is_url
from tfdistr.checkpoint.preemption import Preemption
from tfdistr.data.source import form_of
from tfdistr.errors import ArgumentError, WorkerFailedError
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.documents import write_job
from tfdistr.jobs.membership import InformedPeers
from tfdistr.jobs.outcome import Outcome
from tfdistr.jobs.result_files import save_training
from tfdistr.jobs.resume import begin_or_resume
from tfdistr.jobs.run_dir import open_run_dir
from tfdistr.jobs.stored_run import StoredRun
from tfdistr.r.functions import begin_with_seed
from tfdistr.r.values import seed_of_r
from tfdistr.rendezvous.config import ClusterConfig
from tfdistr.training.given_model import callers_model, comparison_of
from tfdistr.training.job import Job
from tfdistr.training.keras_settings import KerasSettings
from tfdistr.training.model_state import LazyModel, ModelState
from tfdistr.utils.interrupts import defer_sigint
from tfdistr.utils.tuning import describe_tuning

if TYPE_CHECKING:
    from tfdistr.strategies.worker_strategy import WorkerStrategy
    from tfdistr.training.trained_model import Training


def train_here(
    job: Job,
    strategy: WorkerStrategy,
    caller: Caller,
    run_dir: str | os.PathLike[str] | None = None,
    *,
    workers: int | None = None,
    find_lost: Callable[[BaseException], WorkerFailedError | None] = lambda error: None,
) -> Outcome:
    """Train as this worker.

    Args:
        run_dir: Folder or URL for the checkpoints, if the job has any; only the chief's is used.
        workers: Number of workers, if it differs from the strategy's.
        find_lost: Returns the lost process, if an error is about a process that does not train.
    """
    from tfdistr.training.tasks import run_task

    workers = strategy.num_workers if workers is None else workers
    preemption = Preemption()
    peers = InformedPeers(strategy, find_lost)
    with contextlib.ExitStack() as ends:
        ends.callback(peers.wait_for_uploads)
        with peers:
            _agree(job, strategy)
            chief = None
            if job.recovery.every is not None and strategy.is_chief:
                job, chief = _begin_run(job, caller, run_dir, workers, ends)
            stored = chief.stored if chief else None
            job = attrs.evolve(job, seed=peers.agree(job.seed, uploads=stored is not None))
            defer_sigint(caller.on_seed)(seed_of_r(job.seed))
            begin_with_seed(job.functions, job.seed)
            events = _events(caller, strategy.worker_index, stored)
            trained = run_task(job, strategy, events, chief.folder if chief else None, preemption)
            result = _result(job, trained, strategy.worker_index, {"workers": workers})
            if chief and stored:
                save_training(trained, chief.folder)
                result = stored.note(result)
    preemption.pass_on()
    return result


class _RunHere(NamedTuple):
    """A run with checkpoints, for the process that writes them."""

    folder: Path
    stored: StoredRun | None


def _begin_run(
    job: Job,
    caller: Caller,
    run_dir: str | os.PathLike[str] | None,
    workers: int,
    ends: contextlib.ExitStack,
) -> tuple[Job, _RunHere]:
    """Begin or resume the run of a job. With ``ends``, a run in a store is uploaded."""
    resume = job.recovery.resume
    stored = ends.enter_context(StoredRun(str(run_dir), resume=resume)) if is_url(run_dir) else None
    if stored:
        folder = stored.folder
    else:
        opened = open_run_dir(run_dir, resume=resume, heartbeat_timeout=job.heartbeat_timeout)
        folder = ends.enter_context(opened)
    job = begin_or_resume(job, folder, workers)
    write_job(job, folder, workers)
    if stored:
        stored.begin(caller.on_event)
    return job, _RunHere(folder, stored)


def train_as_chief_here(
    job: Job, config: ClusterConfig, caller: Caller, run_dir: str | os.PathLike[str] | None = None
) -> Outcome:
    """Train as the chief of servers that a user has started by hand.

    Args:
        config: The cluster.
        run_dir: Folder or URL for the checkpoints, if the job has any.
    """
    from tfdistr.checkpoint.folder import checkpoints
    from tfdistr.parameter_servers.coordinator import train_on_servers

    preemption, workers = Preemption(), config.num_workers
    with contextlib.ExitStack() as ends:
        run = None
        if job.recovery.every is not None:
            job, run = _begin_run(job, caller, run_dir, workers, ends)
        stored = run.stored if run else None
        defer_sigint(caller.on_seed)(seed_of_r(job.seed))
        begin_with_seed(job.functions, job.seed)
        trained = train_on_servers(
            job, config, _events(caller, 0, stored), **job.options,
            checkpoints=checkpoints(run.folder) if run else None, preemption=preemption,
        )  # fmt: skip
        result = _result(job, trained, 0, {**trained.report, "workers": workers}, task="chief 0")
        if run and stored:
            save_training(trained, run.folder)
            result = stored.note(result)
    preemption.pass_on()
    return result


def _events(caller: Caller, index: int, stored: StoredRun | None = None) -> Callable[..., None]:
    def send(event: str, **fields: Any) -> None:
        sent = {"event": event, "worker": index, "time": time.time(), **fields}
        caller.on_event(sent)
        if stored:
            stored.on_event(sent)

    return send


def _trained(job: Job, training: Training) -> LazyModel:
    """Return the trained model, or the caller's model, which gets the state of the trained one."""
    made = training.model if callers_model(job.model) is None else None
    return LazyModel(
        job.model, lambda: ModelState.of(training.model, training.inputs), inputs=training.inputs, made=made,
        settings=job.settings,
    )  # fmt: skip


def _result(job: Job, trained: Training, index: int, params: dict[str, Any], **row: Any) -> Outcome:
    worker = {"index": index, "host": socket.gethostname(), "pid": os.getpid(), "status": "done",
              "seconds": trained.seconds, "log": None, "times": trained.times, **row}  # fmt: skip
    return Outcome(
        history=trained.history,
        params={
            **job.params, **comparison_of(job.model), "communication": trained.communication,
            "tuning": describe_tuning(), "differences": trained.differences, **params,
        },
        workers=[worker],
        run_dir=None,
        trained=_trained(job, trained),
        form=form_of(job.data),
    )  # fmt: skip


def _agree(job: Job, strategy: WorkerStrategy) -> None:
    """Refuse to train if the processes of the cluster have other arguments."""
    if strategy.num_workers == 1:
        return
    if strategy.collectives is None:
        raise ArgumentError(
            "Workers that join a cluster by hand train on one device each.",
            received="a worker that sees several GPUs",
            fix="Start a process for each GPU, with CUDA_VISIBLE_DEVICES, or pass "
            'cluster=local_cluster(gpus_per_worker=1).',
        )
    from tfdistr.collectives.comparison import agree, versions

    fields = {name: "none" if value is None else value for name, value in job.description.items()}
    fields["seed"] = job.seed if job.seed_given else None
    agree(strategy.collectives, versions() | fields | KerasSettings.here().description)

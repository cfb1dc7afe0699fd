"""A job in this process: alone, or as a task of a cluster whose processes a user starts by hand."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from tfdistr.checkpoint.preemption import Preemption
from tfdistr.errors import ArgumentError, WorkerFailedError
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.documents import write_job
from tfdistr.jobs.membership import Alone, InformedPeers
from tfdistr.jobs.outcome import Outcome
from tfdistr.jobs.result_files import save_training
from tfdistr.jobs.resume import begin_or_resume
from tfdistr.jobs.stored_run import StoredRun, open_run
from tfdistr.r.functions import begin_with_seed
from tfdistr.r.values import seed_of_r
from tfdistr.rendezvous.config import ClusterConfig
from tfdistr.schemas.events import event_now
from tfdistr.training.job import Job
from tfdistr.training.keras_settings import KerasSettings
from tfdistr.training.model_copies.given_model import callers_model, comparison_of
from tfdistr.training.model_state import LazyModel, ModelState
from tfdistr.utils.interrupts import defer_sigint
from tfdistr.utils.tuning import describe_tuning

if TYPE_CHECKING:
    from tfdistr.strategies.worker_strategy import WorkerStrategy
    from tfdistr.training.reporter import OnEvent
    from tfdistr.training.trained_model import Training


class AsWorker:
    """The place of a job in this process: a worker, alone or among peers."""

    def __init__(
        self,
        strategy: WorkerStrategy,
        workers: int | None = None,
        find_lost: Callable[[BaseException], WorkerFailedError | None] = lambda error: None,
    ) -> None:
        self._strategy = strategy
        self.workers = strategy.num_workers if workers is None else workers
        self.index = strategy.worker_index
        self.task: dict[str, str] = {}
        self.peers = InformedPeers(strategy, find_lost)

    @property
    def is_chief(self) -> bool:
        """Return whether this process writes the checkpoints."""
        return self._strategy.is_chief

    def agree(self, job: Job) -> None:
        """Refuse to train if the processes of the cluster have other arguments."""
        if self._strategy.num_workers == 1:
            return
        if self._strategy.collectives is None:
            raise ArgumentError(
                "Workers that join a cluster by hand train on one device each.",
                received="a worker that sees several GPUs",
                fix="Start a process for each GPU, with CUDA_VISIBLE_DEVICES, or pass "
                "cluster=local_cluster(gpus_per_worker=1).",
            )
        from tfdistr.collectives.comparison import agree, versions

        fields = {name: "none" if value is None else value for name, value in job.description.items()}
        fields["seed"] = job.seed if job.seed_given else None
        agree(self._strategy.collectives, versions() | fields | KerasSettings.here().description)

    def train(self, job: Job, on_event: OnEvent, folder: Path | None, preemption: Preemption) -> Training:
        """Run the task of the job."""
        from tfdistr.training.tasks import run_task

        return run_task(job, self._strategy, on_event, folder, preemption)


class AsChiefOfServers:
    """The place of a job in this process: the chief of servers that a user has started by hand."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self.workers = config.num_workers
        self.index, self.task = 0, {"task": "chief 0"}
        self.is_chief = True
        self.peers = Alone()  # the coordinator names lost servers

    def agree(self, job: Job) -> None:
        """Do nothing: the servers have no arguments."""

    def train(self, job: Job, on_event: OnEvent, folder: Path | None, preemption: Preemption) -> Training:
        """Train, and then dismiss the servers."""
        from tfdistr.checkpoint.folder import checkpoints
        from tfdistr.parameter_servers.coordinator import train_on_servers

        kept = checkpoints(folder, job.recovery.keep) if folder else None
        return train_on_servers(job, self._config, on_event, checkpoints=kept, preemption=preemption)


def train_here(
    job: Job,
    place: AsWorker | AsChiefOfServers,
    caller: Caller,
    run_dir: str | os.PathLike[str] | None = None,
) -> Outcome:
    """Train in this process."""
    preemption = Preemption()
    with contextlib.ExitStack() as ends:
        ends.callback(place.peers.wait_for_uploads)
        with place.peers:
            place.agree(job)
            folder, stored = None, None
            if job.recovery.every is not None and place.is_chief:
                folder, stored = ends.enter_context(open_run(run_dir, job))
                job = begin_or_resume(job, folder, place.workers, caller.on_event)
                write_job(job, folder, place.workers)
                if stored:
                    stored.begin(caller.on_event)
            job = attrs.evolve(job, seed=place.peers.agree(job.seed, uploads=stored is not None))
            defer_sigint(caller.on_seed)(seed_of_r(job.seed))
            begin_with_seed(job.functions, job.seed)
            trained = place.train(job, _events(caller, place.index, stored), folder, preemption)
            result = _result(job, trained, place)
            if folder and stored:
                save_training(trained, folder)
                result = stored.note(result)
    preemption.pass_on()
    return result


def _events(caller: Caller, index: int, stored: StoredRun | None = None) -> Callable[..., None]:
    def send(event: str, **fields: object) -> None:
        sent = event_now(event, index, **fields)
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


def _result(job: Job, trained: Training, place: AsWorker | AsChiefOfServers) -> Outcome:
    worker = {"index": place.index, "host": socket.gethostname(), "pid": os.getpid(), "status": "done",
              "seconds": trained.seconds, "log": None, "times": trained.times, **place.task}  # fmt: skip
    return Outcome(
        history=trained.history,
        params={
            **job.params, **comparison_of(job.model), "communication": trained.communication,
            "tuning": describe_tuning(), "differences": trained.differences, "xla": trained.xla,
            **trained.report, "workers": place.workers,
        },
        workers=[worker],
        run_dir=None,
        trained=_trained(job, trained),
        form=trained.form,
    )  # fmt: skip

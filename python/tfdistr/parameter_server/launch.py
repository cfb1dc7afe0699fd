"""A job with parameter servers, from the launcher's side and from that of the chief that it starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdistr.cluster import cluster_from_env
from tfdistr.errors import ArgumentError, WorkerFailedError
from tfdistr.job import Job, Named, load_value, save_value
from tfdistr.launch.local import LocalCluster
from tfdistr.launch.parameter_servers import LocalServers
from tfdistr.launch.supervise import run_workers
from tfdistr.parameter_server.options import ServerOptions
from tfdistr.result import FitResult, load_history, load_model

if TYPE_CHECKING:
    from tfdistr.parameter_server.coordinator import ServersTraining
    from tfdistr.training import OnEvent

_OPTIONS = "servers"


def check_job(job: Job) -> None:
    """Refuse data that the workers cannot read.

    Raises:
        ArgumentError: It comes from a function of R.
    """
    if any(isinstance(source, Named) for source in (job.data, job.validation)):
        raise ArgumentError(
            "The workers of parameter servers read the data in Python, so it cannot be a function of R.",
            received="an R function",
            fix="Pass arrays, a data frame or load_dataset().",
        )


def fit_on_parameter_servers(
    job: Job,
    cluster: LocalCluster,
    command: Sequence[str],
    run_dir: Path,
    on_event: Callable[[dict[str, Any]], None],
    *,
    options: ServerOptions,
    build: Callable[[], Any] | None = None,
    max_restarts: int = 0,
) -> FitResult:
    """Start the chief of ``cluster`` with ``command``, and its servers, wait for them, and gather the result.

    A worker that dies is replaced, and training goes on. If the chief or a parameter server dies, it ends.

    Args:
        job: What to train.
        cluster: Where.
        command: Program and first arguments of the chief; run directory and index are appended.
        run_dir: An empty folder.
        on_event: Called on this thread with every event of the job.
        options: How the weights are updated.
        build: Builds the model in this process; the job's own function by default.
        max_restarts: How often to start again, from the beginning, after a failure.

    Raises:
        ArgumentError: The job cannot be sent to other processes.
        ClusterStartError: The processes could not be started, or did not find each other.
        WorkerFailedError: The chief or a parameter server failed, or a worker with an error of its own.
    """
    check_job(job)
    job.save(run_dir)
    save_value({**vars(options), "start_timeout": cluster.start_timeout}, run_dir, _OPTIONS)
    servers = LocalServers(cluster)
    steps: dict[str, Any] = {}

    def take(event: dict[str, Any]) -> None:
        if event["event"] == "worker_steps":
            steps.update(event)
        on_event(event)

    for attempt in range(max_restarts + 1):
        try:
            statuses = run_workers(servers, command, run_dir, take)
            break
        except WorkerFailedError as error:
            if attempt == max_restarts:
                raise
            reason = error.message.partition("\n")[0].rstrip(".")
            on_event({"event": "restart", "worker": error.worker, "time": time.time(), "reason": reason})
    rows = [{**vars(status), "task": str(task)} for status, task in zip(statuses, servers.tasks, strict=True)]
    for row, task in zip(rows, servers.tasks, strict=True):
        if task.type == "worker":
            row |= {name: int(steps[name][task.index]) for name in ("local_steps", "dropped")}
    return FitResult(
        history=load_history(run_dir),
        params={**job.params, **vars(options), "workers": cluster.workers, "ps": cluster.ps,
                "global_step": int(steps["global_step"])},
        workers=rows,
        run_dir=str(run_dir),
        _make_model=lambda: load_model(build or job.model, run_dir),
    )  # fmt: skip


def has_servers(run_dir: Path) -> bool:
    """Whether the job in ``run_dir`` is one with parameter servers."""
    return (run_dir / f"{_OPTIONS}.pkl").exists()


def train_as_chief(
    run_dir: Path, on_event: OnEvent, functions: Mapping[str, Any] | None = None
) -> ServersTraining:
    """Train the job in ``run_dir`` as the chief that the launcher has started.

    Args:
        run_dir: The run directory.
        on_event: Called as ``on_event(kind, **fields)``.
        functions: What stands for each ``Named`` part of the job.
    """
    from tfdistr.parameter_server.coordinator import train_on_servers
    from tfdistr.parameter_server.strategy import parameter_server_strategy

    options = load_value(run_dir, _OPTIONS)
    # First of all: what is in the job uses TensorFlow.
    strategy = parameter_server_strategy(options.pop("start_timeout"))
    config = cluster_from_env()
    assert config is not None  # else there were no strategy
    job = Job.load(run_dir, functions)
    return train_on_servers(job, config, on_event, **options, run_dir=run_dir, strategy=strategy)

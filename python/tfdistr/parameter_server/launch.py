"""A job with parameter servers, from the launcher's side and from that of the chief that it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdistr.cluster import cluster_from_env
from tfdistr.errors import ArgumentError
from tfdistr.job import Job, Named
from tfdistr.parameter_server.options import ServerOptions

if TYPE_CHECKING:
    from tfdistr.parameter_server.coordinator import ServersTraining
    from tfdistr.training import OnEvent


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


class WorkerSteps:
    """Takes in what the chief says of the steps of its workers, and hands all events on.

    Args:
        on_event: What they are handed to.
    """

    def __init__(self, on_event: Callable[[dict[str, Any]], None]) -> None:
        self._on_event = on_event
        self._last: dict[str, Any] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "worker_steps":
            self._last = event
        self._on_event(event)

    def params(self, job: Job) -> dict[str, Any]:
        """How the weights were updated, and how often."""
        return {**vars(ServerOptions(**job.options)), "global_step": int(self._last["global_step"])}

    def of(self, task: str) -> dict[str, int]:
        """How often the gradient of a task was part of one, and was dropped; nothing if it is no worker."""
        job, _, index = task.partition(" ")
        names = ("local_steps", "dropped") if job == "worker" else ()
        return {name: int(self._last[name][int(index)]) for name in names}


def train_as_chief(
    run_dir: Path, options: Mapping[str, Any], on_event: OnEvent, functions: Mapping[str, Any] | None = None
) -> ServersTraining:
    """Train the job in ``run_dir`` as the chief that the launcher has started.

    Args:
        run_dir: The run directory.
        options: Those of `ServerOptions`, and ``start_timeout``, seconds that the servers may take to come.
        on_event: Called as ``on_event(kind, **fields)``.
        functions: What stands for each ``Named`` part of the job.
    """
    from tfdistr.parameter_server.coordinator import train_on_servers
    from tfdistr.parameter_server.strategy import parameter_server_strategy

    start_timeout, how = options["start_timeout"], {k: options[k] for k in options if k != "start_timeout"}
    # First of all: what is in the job uses TensorFlow.
    strategy = parameter_server_strategy(start_timeout)
    config = cluster_from_env()
    assert config is not None  # else there were no strategy
    job = Job.load(run_dir, functions)
    return train_on_servers(job, config, on_event, **how, run_dir=run_dir, strategy=strategy)

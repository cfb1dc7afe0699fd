"""A job with parameter servers: its options, and the parts of the launcher and of the chief."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdistr.checkpoint.folder import checkpoints
from tfdistr.clusters.local.cluster import LocalCluster
from tfdistr.data.source import describe_source
from tfdistr.errors import ArgumentError
from tfdistr.r.functions import RFunction
from tfdistr.rendezvous.config import cluster_from_env
from tfdistr.strategies.options import ParameterServer
from tfdistr.training.job import Job
from tfdistr.utils.function_files import FunctionByName

if TYPE_CHECKING:
    from tfdistr.parameter_servers.coordinator import ServersTraining
    from tfdistr.training.reporter import OnEvent


def check_data(job: Job) -> None:
    """Refuse data that the workers cannot read."""
    if any(isinstance(source, FunctionByName | RFunction) for source in (job.data, job.validation)):
        raise ArgumentError(
            "With parameter servers the data cannot be an R function: the workers read it in Python.",
            received="an R function",
            fix="Pass arrays, a data frame or load_dataset().",
        )


class WorkerSteps:
    """A handler that records the chief's report of its workers' steps, and forwards all events."""

    def __init__(self, on_event: Callable[[dict[str, Any]], object]) -> None:
        self._on_event = on_event
        self._last: dict[str, Any] = {}
        self._begun: dict[str, Any] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "worker_steps":
            self._last = event
        if event["event"] == "train_begin":
            self._begun = event
        self._on_event(event)

    def recall(self, result: Mapping[str, Any]) -> None:
        """Load the numbers from the result of a complete run."""
        workers = [row for row in result["workers"] if row["task"].startswith("worker ")]
        self._last = {name: [row[name] for row in workers] for name in ("local_steps", "dropped")}
        self._last |= {name: result["params"][name] for name in ("global_step", "passes")}

    def params(self, job: Job, cluster: LocalCluster) -> dict[str, Any]:
        """Return the options of the updates, the numbers of updates, of passes and of parameter servers."""
        steps = int(self._last["global_step"])
        passes = self._last["passes"] if "passes" in self._last else self._passes(job, steps)
        updates = ParameterServer(**job.options)
        options = {name: getattr(updates, name) for name in ("update", "replicas_to_aggregate")}
        return {**options, "global_step": steps, "passes": passes, "ps": cluster.ps}

    def _passes(self, job: Job, steps: int) -> float | None:
        """Return how often the workers together have used each example; None if it is not known."""
        if job.steps_per_epoch is None:
            return round(steps / int(self._begun["steps"]), 2)
        examples = describe_source(job.data)
        if job.batch_size is None or not isinstance(examples, int):
            return None
        return round(steps * job.batch_size / examples, 2)

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row of a process; for a worker, with its numbers of applied and dropped gradients."""
        job, _, index = row["task"].partition(" ")
        names = ("local_steps", "dropped") if job == "worker" else ()
        return {**row, **{name: int(self._last[name][int(index)]) for name in names}}


def train_as_chief(
    run_dir: Path, options: Mapping[str, Any], on_event: OnEvent, functions: Mapping[str, Any] | None = None
) -> ServersTraining:
    """Train the job in ``run_dir`` as the chief that the launcher has started.

    Args:
        options: The options of the updates, see `parameter_server`, and ``start_timeout``, seconds that the
            servers may take to start.
        on_event: Called as ``on_event(kind, **fields)``.
        functions: The value for each ``FunctionByName`` part of the job.
    """
    from tfdistr.parameter_servers.coordinator import train_on_servers
    from tfdistr.servers.chief import parameter_server_strategy

    start_timeout, how = options["start_timeout"], {k: options[k] for k in options if k != "start_timeout"}
    # Before the job is loaded: its parts use TensorFlow.
    strategy = parameter_server_strategy(start_timeout)
    config = cluster_from_env()
    assert config is not None  # otherwise there is no strategy
    job = Job.load(run_dir, functions)
    kept = checkpoints(run_dir) if job.recovery.every is not None else None
    return train_on_servers(
        job, config, on_event, **how, run_dir=run_dir, strategy=strategy, checkpoints=kept
    )  # fmt: skip

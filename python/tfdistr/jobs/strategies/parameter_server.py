"""Workers that compute gradients, with the weights on parameter servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from tfdistr.checkpoint.folder import checkpoints
from tfdistr.clusters.backend import Backend
from tfdistr.clusters.cluster import Cluster
from tfdistr.data.source import describe_source
from tfdistr.errors import ArgumentError
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.in_process import AsChiefOfServers, train_here
from tfdistr.jobs.outcome import Outcome
from tfdistr.jobs.strategies.base import WithChief, WorkerStart
from tfdistr.jobs.summary import OnEventOfJob, Summary
from tfdistr.r.functions import RFunction
from tfdistr.rendezvous.config import ClusterConfig, cluster_from_env
from tfdistr.schemas.events import Event
from tfdistr.training.job import Job
from tfdistr.utils.arguments import argument, check_choice, check_optional_int
from tfdistr.utils.function_files import FunctionByName

if TYPE_CHECKING:
    from tfdistr.training.trained_model import Training

UPDATES = ("async", "sync")


@attrs.frozen(kw_only=True)
class ParameterServer(WithChief):
    """Workers, with the weights on parameter servers. `parameter_server` describes the options.

    A chief makes the workers compute.
    """

    name: ClassVar[str] = "parameter_server"
    maker: ClassVar[tuple[str, str]] = ("servers.chief", "parameter_server_strategy")
    ps: ClassVar[int] = 1

    update: str = argument(check_choice, "update", UPDATES, default="async")
    replicas_to_aggregate: int | None = argument(check_optional_int, "replicas_to_aggregate", default=None)

    def __attrs_post_init__(self) -> None:
        if self.replicas_to_aggregate is not None and self.update != "sync":
            raise ArgumentError(
                '`replicas_to_aggregate` needs update="sync": otherwise each gradient is applied alone.',
                received=f"update={self.update!r}, replicas_to_aggregate={self.replicas_to_aggregate}",
                fix='Pass update="sync" too, or leave `replicas_to_aggregate` out.',
            )

    @classmethod
    def fits(cls, workers: int, ps: int, *, peers: bool = False) -> bool:
        """Return whether there are parameter servers."""
        return ps > 0

    @classmethod
    def misfit(cls, ps: int) -> str:
        """Return the rule that a cluster breaks which does not fit."""
        return f"The strategy {cls.name!r} needs parameter servers."

    def check_job(self, job: Job) -> None:
        """Check that the workers can read the data."""
        super().check_job(job)
        if any(isinstance(source, FunctionByName | RFunction) for source in (job.data, job.validation)):
            raise ArgumentError(
                "With parameter servers the data cannot be an R function: the workers read it in Python.",
                received="an R function",
                fix="Pass arrays, a data frame or load_dataset().",
            )

    def backend(self, cluster: Cluster) -> Backend:
        """Return the backend of processes with different tasks, with enough workers."""
        self._check_workers(cluster.workers)
        return super().backend(cluster)

    def _check_joined(self, config: ClusterConfig | None) -> int:
        workers = self._check_size(config)
        self._check_workers(workers)
        return workers

    def _check_workers(self, workers: int) -> None:
        """Refuse to wait for more workers than there are."""
        if self.replicas_to_aggregate is not None and self.replicas_to_aggregate > workers:
            raise ArgumentError(
                "`replicas_to_aggregate` must be at most the number of workers.",
                received=f"replicas_to_aggregate={self.replicas_to_aggregate}, {workers} workers",
                fix=f"Pass replicas_to_aggregate={workers} or less, or start more workers.",
            )

    @classmethod
    def summary(cls, on_event: OnEventOfJob) -> Summary:
        """Return what counts the steps of the workers."""
        return WorkerSteps(on_event)

    @classmethod
    def fit_here(cls, job: Job, config: ClusterConfig | None, caller: Caller, run_dir: Any = None) -> Outcome:
        """Train as the chief of servers that a user has started by hand."""
        assert config is not None  # a job without servers is refused
        return train_here(job, AsChiefOfServers(config), caller, run_dir)

    @classmethod
    def train_in_worker(cls, start: WorkerStart) -> Training:
        """Train as the chief, in a process of the launcher."""
        from tfdistr.parameter_servers.coordinator import train_on_servers

        strategy = cls.make(start_timeout=start.options["start_timeout"])
        config = cluster_from_env()
        assert config is not None  # otherwise there is no strategy
        job = start.job()
        recovery = job.recovery
        kept = checkpoints(start.run_dir, recovery.keep) if recovery.every is not None else None
        return train_on_servers(
            job, config, start.on_event, run_dir=start.run_dir, strategy=strategy, checkpoints=kept
        )


def parameter_server(
    *,
    update: str = "async",
    replicas_to_aggregate: int | None = None,
    start_timeout: float | None = None,
    heartbeat_timeout: float | None = None,
) -> ParameterServer:
    """Choose workers that compute gradients, and parameter servers that hold the weights.

    It needs ``local_cluster(workers=2, ps=1)``, or a TF_CONFIG that makes this process the chief, while
    `tfdistr server` runs the other tasks.

    Args:
        update: "async": each worker takes whole batches, and its gradient is applied when it arrives. "sync":
            each batch is split over the workers, and the mean of their gradients is applied once.
        replicas_to_aggregate: With "sync": the number of workers whose shares of the batch make a step; later
            shares are dropped. By default all workers.
        start_timeout: Without ``cluster``: seconds within which all servers must have joined; by default 300.
        heartbeat_timeout: Without ``cluster``: seconds that the servers may outlive this process.

    Returns:
        The strategy, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: An argument does not have this form, or does not fit another.

    Example:
        >>> parameter_server(update="sync", replicas_to_aggregate=2).update
        'sync'
    """
    return ParameterServer(**locals())


class WorkerSteps(Summary):
    """A handler that records the chief's report of its workers' steps, and forwards all events."""

    def __init__(self, on_event: OnEventOfJob) -> None:
        super().__init__(on_event)
        self._last: dict[str, Any] = {}
        self._begun: Event = {}

    def __call__(self, event: Event) -> None:
        if event["event"] == "worker_steps":
            self._last = {**event}
        if event["event"] == "train_begin":
            self._begun = event
        super().__call__(event)

    def recall(self, result: Mapping[str, Any]) -> None:
        """Load the numbers from the result of a complete run."""
        workers = [row for row in result["workers"] if row["task"].startswith("worker ")]
        self._last = {name: [row[name] for row in workers] for name in ("local_steps", "dropped")}
        self._last |= {name: result["params"][name] for name in ("global_step", "passes")}

    def params(self, job: Job, cluster: Cluster) -> dict[str, Any]:
        """Return the options of the updates, the numbers of updates, of passes and of parameter servers."""
        steps = int(self._last["global_step"])
        passes = self._last["passes"] if "passes" in self._last else self._passes(job, steps)
        updates = ParameterServer(**job.options)
        options = {name: getattr(updates, name) for name in ("update", "replicas_to_aggregate")}
        return {**options, "global_step": steps, "passes": passes, "ps": cluster.ps}

    def _passes(self, job: Job, steps: int) -> float | None:
        """Return how often the workers together have used each example; None if it is not known."""
        of_pass = self._begun.get("steps")
        if job.steps_per_epoch is None and of_pass is not None:
            return round(steps / int(of_pass), 2)
        examples = describe_source(job.data)
        if job.batch_size is None or not isinstance(examples, int):
            return None
        return round(steps * job.batch_size / examples, 2)

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row of a process; for a worker, with its numbers of applied and dropped gradients."""
        job, _, index = row["task"].partition(" ")
        names = ("local_steps", "dropped") if job == "worker" else ()
        return {**row, **{name: int(self._last[name][int(index)]) for name in names}}

"""A strategy of ``distributed_fit()``: its options, what fits it, and how its jobs train."""

from __future__ import annotations

import gc
import importlib
import inspect
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import attrs

from tfdistr.clusters.backend import Backend, backend_path
from tfdistr.clusters.cluster import Cluster
from tfdistr.clusters.resources import take_cores
from tfdistr.collectives.choice import chooses_mpi
from tfdistr.collectives.mpi.world import world
from tfdistr.errors import ArgumentError, ClusterConfigError
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.in_process import AsWorker, train_here
from tfdistr.jobs.outcome import Outcome
from tfdistr.jobs.summary import OnEventOfJob, Summary
from tfdistr.rendezvous.config import ClusterConfig, cluster_from_env
from tfdistr.rendezvous.launcher_ranks import ranks
from tfdistr.rendezvous.meeting import cluster_to_join
from tfdistr.rendezvous.pods import place_in_job
from tfdistr.training.job import Job
from tfdistr.utils.arguments import argument, check_optional_seconds
from tfdistr.utils.describe import call_text, describe, number_of
from tfdistr.utils.tuning import describe_tuning

if TYPE_CHECKING:
    from tfdistr.strategies.worker_strategy import WorkerStrategy
    from tfdistr.training.reporter import OnEvent
    from tfdistr.training.trained_model import Training

log = logging.getLogger("tfdistr")

TIMEOUTS = ("start_timeout", "heartbeat_timeout")


class Destination(NamedTuple):
    """The place where a job trains.

    Attributes:
        shares: The number of shares of a batch.
        backend: The cluster to start, and what it exchanges gradients with; None in this process.
        config: The cluster that this process joins, if there is one.
    """

    shares: int
    backend: Backend | None = None
    config: ClusterConfig | None = None


class WorkerStart(NamedTuple):
    """The state of a process that a launcher has started, before it trains.

    Attributes:
        options: All options for making the strategy.
        functions: The functions of the job that come from another language, by name.
        on_strategy: Called with the strategy as soon as it exists.
    """

    run_dir: Path
    options: Mapping[str, Any]
    functions: Mapping[str, Any] | None
    on_event: OnEvent
    on_strategy: Callable[[WorkerStrategy], None]

    def job(self) -> Job:
        """Read the job. The strategy must be made before, because the parts of a job use TensorFlow."""
        return Job.load(self.run_dir, self.functions)


#: The class of each strategy, by its name. The package fills it.
STRATEGIES: dict[str, type[Strategy]] = {}


@attrs.frozen(kw_only=True)
class Strategy:
    """A strategy of ``distributed_fit()`` and its options. TensorFlow is imported when it trains.

    Attributes:
        name: The name of the strategy.
        maker: The module, and the class or function in it, that makes the strategy of a process.
        of_job: The fields of a job that the maker takes besides the options.
        shrinks: Whether a job can continue with fewer workers.
        has_virtual_workers: Whether virtual workers can make the steps.
        max_workers: Highest number of processes that train; None for no limit.
        ps: Lowest number of parameter servers of a job.
        same_on_any_cluster: Whether the options and the workers do not change the results of a run.
    """

    name: ClassVar[str]
    maker: ClassVar[tuple[str, str]]
    of_job: ClassVar[tuple[str, ...]] = ()
    shrinks: ClassVar[bool] = True
    has_virtual_workers: ClassVar[bool] = False
    max_workers: ClassVar[int | None] = None
    ps: ClassVar[int] = 0
    same_on_any_cluster: ClassVar[bool] = False

    def __str__(self) -> str:
        return call_text(self.name, self)

    # Its options

    def timeouts(self, cluster: Cluster | None) -> dict[str, Any]:
        """Return the timeouts of a job: those of its cluster, or the user's for joining one."""
        of = self if cluster is None else cluster
        values = {name: getattr(of, name, None) for name in TIMEOUTS}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def exchange(self) -> dict[str, Any]:
        """The exchange of gradients between the workers: fields of a job."""
        return {}

    @property
    def options(self) -> dict[str, Any]:
        """The options that belong to this strategy alone, if they are not the defaults."""
        of_all = {*self.exchange, *TIMEOUTS}
        fields = [field for field in attrs.fields(type(self)) if field.name not in of_all]
        values = {field.name: (getattr(self, field.name), field.default) for field in fields}
        return {name: value for name, (value, default) in values.items() if value != default}

    @classmethod
    def arguments(cls, job: Job) -> dict[str, Any]:
        """Return all that the maker of the strategy takes for a job."""
        return {**job.options, **{name: getattr(job, name) for name in cls.of_job}}

    @classmethod
    def make(cls, **arguments: object) -> Any:
        """Make the strategy of this process."""
        module, attribute = cls.maker
        made = getattr(importlib.import_module(f"tfdistr.{module}"), attribute)
        known = inspect.signature(made).parameters
        unknown = [name for name in arguments if name not in known]
        if unknown:
            has = f"the options {', '.join(map(repr, known))}" if known else "no options"
            raise ArgumentError(
                f"The strategy {cls.name!r} has {has}.",
                received=", ".join(map(repr, unknown)),
                fix="Leave it out, or correct its name.",
            )
        return made(**arguments)

    # What fits it

    def destination(self, cluster: Any) -> Destination:
        """Return where a job trains, for the cluster that the user has passed, or None."""
        if cluster is not None:
            self._check_cluster(cluster)
            backend = self.backend(cluster)
            return Destination(self._count_shares(cluster.workers), backend)
        if chooses_mpi(self._communication):
            # The number of the launcher comes first: a rank whose arguments are refused must not start MPI.
            workers = ranks() if ranks() > 1 else int(world().Get_size())
            self._check_fits(workers, 0, "the launcher of this process", peers=True)
            return Destination(self._count_shares(workers))
        config = cluster_to_join()
        return Destination(self._check_joined(config), config=config)

    def check_job(self, job: Job) -> None:
        """Check that a job fits this strategy."""
        if job.virtual_workers is not None and not self.has_virtual_workers:
            raise ArgumentError(
                f"The strategy {self.name!r} cannot keep the promise of `virtual_workers`.",
                received=f"virtual_workers={job.virtual_workers}",
                fix="Leave it out, or pass strategy='multi_worker_mirrored'.",
            )

    @classmethod
    def fits(cls, workers: int, ps: int, *, peers: bool = False) -> bool:
        """Return whether so many processes can train a job; ``peers``: all of them train."""
        return ps == 0 and (cls.max_workers is None or workers <= cls.max_workers)

    def backend(self, cluster: Cluster) -> Backend:
        """Return the backend of ``cluster``; an error before anything is written or started."""
        return cluster.backend(self._communication)

    @classmethod
    def processes(cls, cluster: Cluster) -> Cluster:
        """Return the processes to start: those of the cluster, or a chief with its servers."""
        return cluster

    @classmethod
    def misfit(cls, ps: int) -> str:
        """Return the rule that a cluster breaks which does not fit."""
        if ps:
            return f"The strategy {cls.name!r} has no use for parameter servers."
        return f"The strategy {cls.name!r} trains in one process."

    def _check_fits(self, workers: int, ps: int, where: str, *, peers: bool = False) -> None:
        if self.fits(workers, ps, peers=peers):
            return
        servers = f" and {number_of(ps, 'parameter server')}" if ps or self.ps else ""
        fitting = [repr(name) for name, each in STRATEGIES.items() if each.fits(workers, ps, peers=peers)]
        raise ArgumentError(
            self.misfit(ps),
            received=f"{number_of(workers, 'worker')}{servers}, by {where}",
            fix=f"Change the cluster, or pass a strategy that fits it: {', '.join(fitting)}.",
        )

    def _check_cluster(self, cluster: object) -> None:
        if not isinstance(cluster, Cluster):
            raise ArgumentError(
                "`cluster` must be what local_cluster() or another function of clusters returns, or be left "
                "out.",
                received=describe(cluster),
                fix="Pass cluster=local_cluster(workers=2), or set TF_CONFIG to join a cluster by hand.",
            )
        self._check_fits(cluster.workers, cluster.ps, "the cluster", peers=not cluster.has_servers)
        for name, value in self.timeouts(None).items():
            raise ArgumentError(
                f"With `cluster`, `{name}` is an argument of the cluster.",
                received=f"strategy={self.name}({name}={value:g}), and a cluster",
                fix=f"Pass cluster=local_cluster({name}={value:g}), for example.",
            )

    @property
    def _communication(self) -> str:
        return str(self.exchange.get("communication", "auto"))

    def _check_joined(self, config: ClusterConfig | None) -> int:
        """Check the cluster that this process joins; return the number of shares of a batch."""
        if config is not None and config.worker_index is None:
            raise ClusterConfigError(
                "distributed_fit() joins a cluster as a chief or a worker.",
                received=f"the task {config.task} in TF_CONFIG",
                fix="Call it in the processes of the chief and the workers only.",
            )
        return self._count_shares(self._check_size(config))

    def _check_size(self, config: ClusterConfig | None) -> int:
        """Check the size of the cluster that this process joins; return its number of workers."""
        workers = config.num_workers if config else 1
        ps = len(config.jobs.get("ps", ())) if config else 0
        others = "the Kubernetes Job" if place_in_job() else "the Slurm step"
        joins = "TF_CONFIG" if cluster_from_env() else others
        where = joins if config else "no cluster and no TF_CONFIG"
        self._check_fits(workers, ps, where, peers=config is not None and "chief" not in config.jobs)
        return workers

    def _count_shares(self, workers: int) -> int:
        return workers

    # How its jobs train

    @classmethod
    def summary(cls, on_event: OnEventOfJob) -> Summary:
        """Return what handles the events of a job, and adds the strategy's part to its result."""
        return Summary(on_event)

    @classmethod
    def fit_here(cls, job: Job, config: ClusterConfig | None, caller: Caller, run_dir: Any = None) -> Outcome:
        """Train in this process: alone, or as the task of the cluster in ``config``."""
        return train_here(job, AsWorker(cls.make(**cls.arguments(job))), caller, run_dir)

    @classmethod
    def train_in_worker(cls, start: WorkerStart) -> Training:
        """Train as a process that a launcher has started."""
        cores = take_cores()
        gc.disable()  # the import of TensorFlow makes many objects, and no garbage
        from tfdistr.training.tasks import run_task

        gc.enable()
        strategy = cls.make(**start.options)
        start.on_strategy(strategy)
        if strategy.is_chief:
            log.info(backend_path(start.run_dir).read_text())
        job = start.job()
        log.info("cores: %s; tuning: %s", ", ".join(map(str, cores)), describe_tuning())
        start.on_event("ready")
        return run_task(job, strategy, start.on_event, start.run_dir)


@attrs.frozen(kw_only=True)
class WithTimeouts(Strategy):
    """A strategy whose processes wait for each other."""

    start_timeout: float | None = argument(check_optional_seconds, "start_timeout", default=None)
    heartbeat_timeout: float | None = argument(check_optional_seconds, "heartbeat_timeout", default=None)


@attrs.frozen(kw_only=True)
class WithChief(WithTimeouts):
    """A strategy whose chief makes workers compute."""

    of_job: ClassVar[tuple[str, ...]] = ("start_timeout",)
    shrinks: ClassVar[bool] = False

    def backend(self, cluster: Cluster) -> Backend:
        """Return the backend of processes with different tasks."""
        return Backend("auto", cluster, "the chief has its servers compute")

    @classmethod
    def processes(cls, cluster: Cluster) -> Cluster:
        """Return the chief and its servers."""
        return cluster.with_servers()

"""The rules of each strategy: the clusters, options and jobs that fit it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfdistr.clusters.backend import Backend
from tfdistr.clusters.cluster import Cluster
from tfdistr.collectives.choice import chooses_mpi
from tfdistr.collectives.mpi.world import world
from tfdistr.errors import ArgumentError, ClusterConfigError
from tfdistr.jobs.on_cluster import PlainSummary, Summary
from tfdistr.parameter_server.chief import ServerOptions, WorkerSteps, check_data
from tfdistr.rendezvous.config import ClusterConfig, cluster_from_env
from tfdistr.rendezvous.launcher_ranks import ranks
from tfdistr.rendezvous.meeting import cluster_to_join
from tfdistr.rendezvous.pods import place_in_job
from tfdistr.strategies.layer_placement import check_placement, count_workers
from tfdistr.strategies.registry import check_known
from tfdistr.training.job import Job
from tfdistr.utils.arguments import COMMUNICATION, check_choice
from tfdistr.utils.describe import describe
from tfdistr.utils.interrupts import import_tensorflow

OnEventOfJob = Callable[[dict[str, Any]], object]


class StrategyRules:
    """The rules of a strategy. This class is for equal workers, which exchange their gradients.

    Args:
        name: The name of the strategy.
        options: The options of the strategy in ``distributed_fit()``, beside its own arguments.

    Attributes:
        shrinks: Whether a job can continue with fewer workers.
        exchanges_gradients: Whether the workers exchange gradients.
        has_virtual_workers: Whether virtual workers can make the steps.
        max_workers: Highest number of processes that train; None for no limit.
        ps: Lowest number of parameter servers of a job.
    """

    shrinks = True
    exchanges_gradients = True
    has_virtual_workers = True
    max_workers: int | None = None
    ps = 0

    def __init__(self, name: str, options: tuple[str, ...] = ()) -> None:
        self.name = name
        self._options = options

    def destination(
        self, cluster: Any, communication: Any = "auto", options: Mapping[str, Any] | None = None
    ) -> tuple[ClusterConfig | None, int]:
        """Return where a job trains.

        Args:
            cluster: The user's argument: the cluster to start, or None.
            communication: What carries the gradients.
            options: The options of the strategy.

        Returns:
            The cluster of TF_CONFIG that this process joins, if there is one and ``cluster`` is None; and the
            number of shares of a batch.

        Raises:
            ArgumentError: The job cannot be trained there.
            ClusterConfigError: TF_CONFIG is not valid, or this process is not one that trains.
            ClusterStartError: MPI was requested, and is not available.
        """
        options = options or {}
        check_known(self._options, options, f"Beside its own arguments, distributed_fit() with {self.name!r}")
        check_choice("communication", communication, COMMUNICATION)
        if cluster is not None:
            self._check_cluster(cluster, communication, options)
            return None, self._count_shares(cluster.workers, options)
        if chooses_mpi(communication):
            # The number of the launcher comes first: a rank whose arguments are refused must not start MPI.
            workers = ranks() if ranks() > 1 else int(world().Get_size())
            self._check_fits(workers, 0, "the launcher of this process", peers=True)
            return None, self._count_shares(workers, options)
        config = cluster_to_join()
        return config, self._check_joined(config, options)

    def check_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Check the options of a job, and return them.

        Raises:
            ArgumentError: The strategy has no such option.
        """
        check_known(self._options, options, f"Beside its own arguments, distributed_fit() with {self.name!r}")
        return dict(options)

    def check_job(self, job: Job) -> None:
        """Check that a job fits this strategy.

        Raises:
            ArgumentError: It does not fit.
        """
        if job.virtual_workers is not None and not self.has_virtual_workers:
            raise ArgumentError(
                f"The strategy {self.name!r} cannot keep the promise of `virtual_workers`.",
                received=f"virtual_workers={job.virtual_workers}",
                fix="Leave it out, or pass strategy='multi_worker_mirrored'.",
            )
        given = {"communication": "auto", "gradient_dtype": "float32"}
        chosen = [f"{name}={getattr(job, name)!r}" for name in given if getattr(job, name) != given[name]]
        if chosen and not self.exchanges_gradients:
            raise ArgumentError(
                f"With {self.name!r} workers exchange no gradients, so that how they do cannot be chosen.",
                received=", ".join(chosen),
                fix="Leave it out, or pass strategy='multi_worker_mirrored'.",
            )

    def fits(self, workers: int, ps: int, *, peers: bool = False) -> bool:
        """Return whether this number of processes can train a job.

        Args:
            workers: Number of processes that train.
            ps: Number of parameter servers.
            peers: Whether all processes train: MPI ranks, or workers without a chief.
        """
        return ps == 0 and (self.max_workers is None or workers <= self.max_workers)

    def backend(self, cluster: Cluster, communication: str) -> Backend:
        """Return the backend of the collectives between the processes of ``cluster``."""
        return cluster.backend(communication)

    def _misfit(self, ps: int) -> str:
        """Return the rule that the cluster breaks."""
        if ps:
            return f"The strategy {self.name!r} has no use for parameter servers."
        return f"The strategy {self.name!r} trains in one process."

    def _check_fits(self, workers: int, ps: int, where: str, *, peers: bool = False) -> None:
        if self.fits(workers, ps, peers=peers):
            return
        servers = f" and {ps} parameter server{'s' * (ps != 1)}" if ps or self.ps else ""
        fitting = [repr(name) for name, each in RULES.items() if each.fits(workers, ps, peers=peers)]
        raise ArgumentError(
            self._misfit(ps),
            received=f"{workers} worker{'s' * (workers != 1)}{servers}, by {where}",
            fix=f"Change the cluster, or pass a strategy that fits it: {', '.join(fitting)}.",
        )

    def _check_cluster(self, cluster: Any, communication: str, options: Mapping[str, Any]) -> None:
        if not isinstance(cluster, Cluster):
            raise ArgumentError(
                "`cluster` must be what local_cluster() or another function of clusters returns, or be left "
                "out.",
                received=describe(cluster),
                fix="Pass cluster=local_cluster(workers=2), or set TF_CONFIG to join a cluster by hand.",
            )
        self._check_fits(cluster.workers, cluster.ps, "the cluster", peers=not cluster.has_servers)
        self._check_started(cluster, communication, options)

    def _check_started(self, cluster: Cluster, communication: str, options: Mapping[str, Any]) -> None:
        self.backend(cluster, communication)  # fails before anything is written or started

    def _check_joined(self, config: ClusterConfig | None, options: Mapping[str, Any]) -> int:
        """Check the cluster that this process joins; return the number of shares of a batch."""
        if config is not None and config.worker_index is None:
            raise ClusterConfigError(
                "distributed_fit() joins a cluster as a chief or a worker.",
                received=f"the task {config.task} in TF_CONFIG",
                fix="Call it in the processes of the chief and the workers only.",
            )
        return self._count_shares(self._check_fits_config(config), options)

    def _check_fits_config(self, config: ClusterConfig | None) -> int:
        """Check the size of the cluster that this process joins; return its number of workers."""
        workers = config.num_workers if config else 1
        ps = len(config.jobs.get("ps", ())) if config else 0
        others = "the Kubernetes Job" if place_in_job() else "the Slurm step"
        joins = "TF_CONFIG" if cluster_from_env() else others
        where = joins if config else "no cluster and no TF_CONFIG"
        peers = config is not None and "chief" not in config.jobs
        self._check_fits(workers, ps, where, peers=peers)
        return workers

    def _count_shares(self, workers: int, options: Mapping[str, Any]) -> int:
        return workers

    def summary(self, on_event: OnEventOfJob) -> Summary:
        """Handles the events of a job, and adds the strategy's part to the result at the end."""
        return PlainSummary(on_event)


class OneProcessRules(StrategyRules):
    """The rules of strategies for one process."""

    has_virtual_workers = False
    max_workers = 1


class MirroredRules(OneProcessRules):
    """The rules for the devices of one process."""

    def _count_shares(self, workers: int, options: Mapping[str, Any]) -> int:
        devices = options.get("devices")
        if devices is not None:
            return max(1, len(devices)) if isinstance(devices, list | tuple) else 1
        import_tensorflow()
        import tensorflow as tf

        return max(1, len(tf.config.list_physical_devices("GPU")))


class ParameterServerRules(StrategyRules):
    """The rules for a chief that makes workers compute, with the weights on parameter servers."""

    shrinks = False
    exchanges_gradients = False
    has_virtual_workers = False
    ps = 1

    def fits(self, workers: int, ps: int, *, peers: bool = False) -> bool:
        """Return whether there are parameter servers."""
        return ps > 0

    def check_job(self, job: Job) -> None:
        """Check that the workers can read the data."""
        super().check_job(job)
        check_data(job)

    def _misfit(self, ps: int) -> str:
        return f"The strategy {self.name!r} needs parameter servers."

    def _check_started(self, cluster: Cluster, communication: str, options: Mapping[str, Any]) -> None:
        ServerOptions(**options).check_workers(cluster.workers)

    def _check_joined(self, config: ClusterConfig | None, options: Mapping[str, Any]) -> int:
        workers = self._check_fits_config(config)
        ServerOptions(**options).check_workers(workers)
        return workers

    def backend(self, cluster: Cluster, communication: str) -> Backend:
        """Processes with different tasks."""
        return _servers(cluster)

    def summary(self, on_event: OnEventOfJob) -> Summary:
        """Counts the steps of the workers."""
        return WorkerSteps(on_event)


class ModelParallelRules(StrategyRules):
    """The rules for one process, the client, which may make workers compute their layers."""

    shrinks = False
    exchanges_gradients = False
    has_virtual_workers = False

    def fits(self, workers: int, ps: int, *, peers: bool = False) -> bool:
        """Return whether the workers have a chief and there are no parameter servers."""
        return ps == 0 and not peers

    def _misfit(self, ps: int) -> str:
        if ps:
            return super()._misfit(ps)
        return f"The strategy {self.name!r} trains in one process; MPI ranks cannot compute for it."

    def _check_started(self, cluster: Cluster, communication: str, options: Mapping[str, Any]) -> None:
        check_placement(options.get("placement"), cluster.workers)

    def _check_joined(self, config: ClusterConfig | None, options: Mapping[str, Any]) -> int:
        check_placement(options.get("placement"), None if config is None else count_workers(config))
        return 1

    def _count_shares(self, workers: int, options: Mapping[str, Any]) -> int:
        return 1

    def backend(self, cluster: Cluster, communication: str) -> Backend:
        """Processes with different tasks."""
        return _servers(cluster)


def _servers(cluster: Cluster) -> Backend:
    return Backend("auto", cluster.with_servers(), "the chief has its servers compute")


#: The rules of each strategy, by its name.
RULES = {
    rules.name: rules
    for rules in (
        StrategyRules("multi_worker_mirrored"),
        MirroredRules("mirrored", ("devices",)),
        OneProcessRules("one_device", ("device",)),
        ParameterServerRules("parameter_server", ("update", "replicas_to_aggregate")),
        ModelParallelRules("model_parallel", ("placement",)),
    )
}


def rules_of(strategy: Any) -> StrategyRules:
    """Return the rules of a strategy.

    Raises:
        ArgumentError: The strategy does not exist.
    """
    return RULES[check_choice("strategy", strategy, tuple(RULES))]

"""The layers of one model on several devices, or on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import attrs

from tfdistr.clusters.backend import Backend
from tfdistr.clusters.cluster import Cluster
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.in_process import AsWorker, train_here
from tfdistr.jobs.outcome import Outcome
from tfdistr.jobs.strategies.base import WithChief
from tfdistr.rendezvous.config import ClusterConfig
from tfdistr.servers.server_task import lost_server
from tfdistr.strategies.layer_placement import check_form, check_placement, workers_in
from tfdistr.training.job import Job


@attrs.frozen(kw_only=True)
class ModelParallel(WithChief):
    """The layers of one model on several devices. `model_parallel` describes the options.

    One process, the client, trains. It may make workers compute their layers.
    """

    name: ClassVar[str] = "model_parallel"
    maker: ClassVar[tuple[str, str]] = ("strategies.model_parallel", "ModelParallelStrategy")
    same_on_any_cluster: ClassVar[bool] = True

    placement: object = attrs.field(converter=check_form)

    @classmethod
    def fits(cls, workers: int, ps: int, *, peers: bool = False) -> bool:
        """Return whether the workers have a chief and there are no parameter servers."""
        return ps == 0 and not peers

    @classmethod
    def misfit(cls, ps: int) -> str:
        """Return the rule that a cluster breaks which does not fit."""
        if ps:
            return super().misfit(ps)
        return f"The strategy {cls.name!r} trains in one process; MPI ranks cannot compute for it."

    def backend(self, cluster: Cluster) -> Backend:
        """Return the backend of processes with different tasks, among which is each place."""
        check_placement(self.placement, cluster.workers)
        return super().backend(cluster)

    def _check_joined(self, config: ClusterConfig | None) -> int:
        check_placement(self.placement, None if config is None else workers_in(config))
        return 1

    def _count_shares(self, workers: int) -> int:
        return 1

    @classmethod
    def fit_here(cls, job: Job, config: ClusterConfig | None, caller: Caller, run_dir: Any = None) -> Outcome:
        """Train in this process, with the workers that a user has started by hand, if any."""
        strategy = cls.make(**cls.arguments(job))
        place = AsWorker(strategy)
        if config is not None:
            lost = lambda error: lost_server(error, config, "worker")  # noqa: E731
            place = AsWorker(strategy, workers_in(config), lost)
        try:
            return train_here(job, place, caller, run_dir)
        finally:
            strategy.leave()


def model_parallel(
    placement: Mapping[str, str] | Callable[[Any], str | None],
    *,
    start_timeout: float | None = None,
    heartbeat_timeout: float | None = None,
) -> ModelParallel:
    """Choose a model whose layers are on several devices, or on the workers of a cluster.

    Args:
        placement: The place of each layer by its name, such as ``{"dense_1": "worker 0",
            "dense_2": "worker 1"}``, or a function that returns the place of a layer; see
            ``ModelParallelStrategy``.
        start_timeout: Without ``cluster``: seconds within which all servers must have joined; by default 300.
        heartbeat_timeout: Without ``cluster``: seconds that the servers may outlive this process.

    Returns:
        The strategy, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: ``placement`` does not have this form.

    Example:
        >>> model_parallel({"dense_1": "cpu:0", "dense_2": "cpu:0"}).name
        'model_parallel'
    """
    return ModelParallel(**locals())


def with_placement(strategy: ModelParallel, placement: object) -> ModelParallel:
    """Return the strategy with another placement: R passes its function to the workers by name."""
    return attrs.evolve(strategy, placement=placement)

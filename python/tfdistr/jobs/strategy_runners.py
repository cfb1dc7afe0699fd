"""How the jobs of each strategy train, in this process and in those of workers."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdistr.clusters.backend import backend_path
from tfdistr.clusters.resources import take_cores
from tfdistr.collectives.choice import chooses_mpi
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.in_process import train_as_chief_here, train_here
from tfdistr.jobs.membership import JOINED
from tfdistr.jobs.outcome import Outcome
from tfdistr.parameter_servers.chief import train_as_chief
from tfdistr.rendezvous.config import ClusterConfig
from tfdistr.servers.server_task import lost_server
from tfdistr.strategies.layer_placement import count_workers
from tfdistr.strategies.registry import make_strategy
from tfdistr.training.job import Job
from tfdistr.utils.tuning import describe_tuning

if TYPE_CHECKING:
    from tfdistr.strategies.worker_strategy import WorkerStrategy
    from tfdistr.training.reporter import OnEvent
    from tfdistr.training.trained_model import Training

log = logging.getLogger("tfdistr")


class StrategyRunner:
    """Trains the jobs of a strategy. This class is for equal workers, which exchange their gradients."""

    def __init__(self, name: str) -> None:
        self.name = name

    def fit_here(
        self, job: Job, config: ClusterConfig | None, caller: Caller, run_dir: Any = None
    ) -> Outcome:
        """Train in this process: alone, or as the task of the cluster in ``config``."""
        alone = config is None and not chooses_mpi(job.communication)
        if alone and job.virtual_workers is not None:
            from tfdistr.strategies.multi_worker_mirrored import MultiWorkerMirroredStrategy

            return train_here(job, MultiWorkerMirroredStrategy(**job.strategy_options), caller, run_dir)
        if alone:
            from tfdistr.strategies.worker_strategy import SingleWorker

            return train_here(job, SingleWorker(), caller, run_dir)
        return train_here(job, JOINED.join(config, job), caller, run_dir)

    def train_in_worker(
        self,
        run_dir: Path,
        options: Mapping[str, Any],
        functions: Mapping[str, Any] | None,
        on_event: OnEvent,
        on_strategy: Callable[[WorkerStrategy], None],
    ) -> Training:
        """Train as a process that a launcher has started.

        Args:
            options: All options for making the strategy.
            functions: The functions of the job that come from another language, by name.
            on_strategy: Called with the strategy as soon as it exists.
        """
        cores = take_cores()
        gc.disable()  # the import of TensorFlow makes many objects, and no garbage
        from tfdistr.training.tasks import run_task

        gc.enable()
        strategy: Any = make_strategy(self.name, **options)
        on_strategy(strategy)
        if strategy.is_chief:
            log.info(backend_path(run_dir).read_text())
        job = Job.load(run_dir, functions)
        log.info("cores: %s; tuning: %s", ", ".join(map(str, cores)), describe_tuning())
        on_event("ready")
        return run_task(job, strategy, on_event, run_dir)


class OneProcessRunner(StrategyRunner):
    """Trains the jobs of strategies for one process."""

    def fit_here(
        self, job: Job, config: ClusterConfig | None, caller: Caller, run_dir: Any = None
    ) -> Outcome:
        """Train in this process."""
        strategy: Any = make_strategy(self.name, **job.strategy_options)
        return train_here(job, strategy, caller, run_dir)


class ParameterServerRunner(StrategyRunner):
    """Trains the jobs whose chief holds the weights on parameter servers."""

    def fit_here(
        self, job: Job, config: ClusterConfig | None, caller: Caller, run_dir: Any = None
    ) -> Outcome:
        """Train as the chief of servers that a user has started by hand."""
        assert config is not None  # the rules refuse a job without servers
        return train_as_chief_here(job, config, caller, run_dir)

    def train_in_worker(
        self,
        run_dir: Path,
        options: Mapping[str, Any],
        functions: Mapping[str, Any] | None,
        on_event: OnEvent,
        on_strategy: Callable[[WorkerStrategy], None],
    ) -> Training:
        """Train as the chief, in a process of the launcher."""
        return train_as_chief(run_dir, options, on_event, functions)


class ModelParallelRunner(StrategyRunner):
    """Trains the jobs of one process, the client, which may make workers compute their layers."""

    def fit_here(
        self, job: Job, config: ClusterConfig | None, caller: Caller, run_dir: Any = None
    ) -> Outcome:
        """Train in this process, with the workers that a user has started by hand, if any."""
        strategy: Any = make_strategy(self.name, **job.strategy_options)
        try:
            if config is None:
                return train_here(job, strategy, caller, run_dir)
            return train_here(
                job, strategy, caller, run_dir, workers=count_workers(config),
                find_lost=lambda error: lost_server(error, config, "worker"),
            )  # fmt: skip
        finally:
            strategy.leave()


#: The runner of each strategy, by its name.
RUNNERS = {
    runner.name: runner
    for runner in (
        StrategyRunner("multi_worker_mirrored"),
        OneProcessRunner("mirrored"),
        OneProcessRunner("one_device"),
        ParameterServerRunner("parameter_server"),
        ModelParallelRunner("model_parallel"),
    )
}

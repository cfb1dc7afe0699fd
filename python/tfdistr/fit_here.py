"""A job in this process: alone, or as the task of a cluster that was started by hand."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tfdistr.cluster import ClusterConfig
from tfdistr.data.source import Arrays
from tfdistr.errors import ClusterStartError, JobMismatchError, JobStoppedError
from tfdistr.job import Job
from tfdistr.model_parallel.places import count_workers
from tfdistr.mpi import chooses_mpi
from tfdistr.parameter_server.launch import check_job
from tfdistr.parameter_server.lost import lost_server
from tfdistr.peer_failure import is_peer_failure, lost_worker, reported_failure, what_to_tell
from tfdistr.recovery.run import take_up
from tfdistr.recovery.told_to_end import ToldToEnd
from tfdistr.result import FitResult
from tfdistr.run_dir import make_run_dir
from tfdistr.strategies import STRATEGIES, make_strategy

if TYPE_CHECKING:
    from tfdistr.strategy import MultiWorkerMirroredStrategy


class _Cluster:
    """The cluster that this process has joined, which TensorFlow can do once."""

    how: ClassVar[dict[str, Any]] = {}
    strategy: ClassVar[MultiWorkerMirroredStrategy | None] = None
    failure: ClassVar[str] = ""


def fit_here(
    job: Job,
    config: ClusterConfig | None,
    on_event: Callable[[dict[str, Any]], None],
    *,
    on_seed: Callable[[int], None] = lambda seed: None,
    run_dir: str | os.PathLike[str] | None = None,
) -> FitResult:
    """Train in this process: alone, or as the task of a cluster that TF_CONFIG describes.

    Args:
        job: What to train.
        config: The cluster to join.
        on_event: Called on this thread with every event of the job.
        on_seed: Called with the seed, which is the chief's in a cluster, before the job's functions are.
        run_dir: Folder for the checkpoints, if the job has some; the chief's is used.
    """
    kind = STRATEGIES[job.strategy]
    if kind.servers:
        assert config is not None
        return _fit_as_chief(job, config, on_event, on_seed)
    strategy: Any = None
    if job.strategy != "multi_worker_mirrored":
        strategy = make_strategy(job.strategy, **job.strategy_options)
    elif config is not None or chooses_mpi(job.communication):
        strategy = _joined_strategy(config.to_json() if config else "", job)
    from tfdistr.training import train

    index = strategy.worker_index if strategy else 0
    workers = strategy.num_workers if strategy else 1
    if kind.client and config is not None:
        workers = count_workers(config)

    def send(kind: str, **fields: Any) -> None:
        on_event({"event": kind, "worker": index, "time": time.time(), **fields})

    folder: Path | None = None
    ending = ToldToEnd()
    try:
        if strategy is not None:
            _agree(job, strategy)
        if job.recovery.every is not None and (strategy is None or strategy.is_chief):
            folder = make_run_dir(run_dir, resume=job.recovery.resume)
            job = take_up(job, folder, workers)
        if strategy is not None:
            job = replace(job, seed=_chiefs(job.seed, strategy))
        on_seed(job.seed)
        trained = train(job, strategy, send, folder, ending)
    except JobStoppedError:
        raise
    except BaseException as error:  # an interrupt, too: the session may live on
        if strategy is None or isinstance(error, JobMismatchError):  # which all workers raise
            raise
        tasks = getattr(strategy, "tasks", {})
        known = told = reported_failure(error, tasks)
        if known is None and is_peer_failure(error):
            lost = kind.client and config is not None and lost_server(error, config, "worker")
            known = lost or lost_worker(error, tasks)
        if told is None:
            strategy.report_failure(what_to_tell(error, index, tasks))
        if strategy is _Cluster.strategy and workers > 1:
            _Cluster.failure = str(known or what_to_tell(error, index, {})).partition("\n")[0]
        if known is not None:
            raise known from None
        raise
    finally:
        if kind.client:
            strategy.leave()
    worker = {"index": index, "host": socket.gethostname(), "pid": os.getpid(), "status": "done",
              "seconds": trained.seconds, "log": None}  # fmt: skip
    fit = FitResult(
        history=trained.history,
        params={**job.params, "communication": trained.communication, "workers": workers},
        workers=[worker],
        run_dir=None,
        _make_model=lambda: trained.model,
    )
    ending.pass_on()
    return fit


def _fit_as_chief(
    job: Job,
    config: ClusterConfig,
    on_event: Callable[[dict[str, Any]], None],
    on_seed: Callable[[int], None],
) -> FitResult:
    """Train as the chief of servers that were started by hand."""
    on_seed(job.seed)
    check_job(job)
    from tfdistr.parameter_server.coordinator import train_on_servers

    def send(kind: str, **fields: Any) -> None:
        on_event({"event": kind, "worker": 0, "time": time.time(), **fields})

    trained = train_on_servers(job, config, send, **job.options)
    chief = {"index": 0, "host": socket.gethostname(), "pid": os.getpid(), "status": "done",
             "seconds": trained.seconds, "log": None, "task": "chief 0"}  # fmt: skip
    return FitResult(
        history=trained.history,
        params={
            **job.params, **trained.report, "communication": trained.communication,
            "workers": config.num_workers,
        },
        workers=[chief],
        run_dir=None,
        _make_model=lambda: trained.model,
    )


def _joined_strategy(config: str, job: Job) -> MultiWorkerMirroredStrategy:
    """The strategy of this process, which it makes in its first call.

    Raises:
        ClusterStartError: A worker has failed in a call before, or the cluster was joined in another way.
    """
    from tfdistr.strategy import MultiWorkerMirroredStrategy

    how = {"TF_CONFIG": config, **job.strategy_options}
    del how["start_timeout"]  # the start was in the first call
    if _Cluster.failure:
        raise ClusterStartError(
            "A cluster trains until one of its workers fails: its connections are closed then.",
            received=f"a call after this: {_Cluster.failure}",
            fix="Start the process, or the session, of each worker again.",
        )
    if _Cluster.strategy is None:
        _Cluster.strategy, _Cluster.how = MultiWorkerMirroredStrategy(**job.strategy_options), how
    other = [name for name in how if how[name] != _Cluster.how[name]]
    if other:
        raise ClusterStartError(
            "A process joins one cluster, in its first call, and stays in it.",
            received=" and ".join(
                f"{name} {how[name]!r}, where the first call had {_Cluster.how[name]!r}" for name in other
            ),
            fix="Call as the first call did, or start the process of each worker again.",
        )
    return _Cluster.strategy


def _agree(job: Job, strategy: MultiWorkerMirroredStrategy) -> None:
    """Refuse to train where the processes of the cluster were called with other arguments."""
    from tfdistr.agreement import agree, versions

    if strategy.num_workers > 1:
        fields = {name: "none" if value is None else value for name, value in job.params.items()}
        fields["seed"] = job.seed if job.seed_given else None
        for name, source in (("examples", job.data), ("validation examples", job.validation)):
            fields[name] = source.examples if isinstance(source, Arrays) else type(source).__name__
        agree(strategy.extended.collectives, versions() | fields)


def _chiefs(number: int, strategy: MultiWorkerMirroredStrategy) -> int:
    """The chief's ``number``: where the user gave no seed, each process has drawn one of its own."""
    import tensorflow as tf

    if strategy.num_workers == 1:
        return number
    return int(strategy.gather(tf.constant([number], tf.int64), axis=0)[0])

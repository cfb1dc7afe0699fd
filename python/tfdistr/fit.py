"""``distributed_fit()``: one call that trains a Keras 3 model on one or many workers."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdistr.arguments import COMMUNICATION, one_of, whole
from tfdistr.cluster import ClusterConfig, cluster_from_env
from tfdistr.data.source import Arrays
from tfdistr.errors import (
    ArgumentError,
    ClusterConfigError,
    JobMismatchError,
    TfdistrError,
    WorkerFailedError,
)
from tfdistr.job import Job
from tfdistr.job_arguments import make_job
from tfdistr.launch.carrier import carrier_path, choose_carrier
from tfdistr.launch.local import LocalCluster
from tfdistr.launch.mpi import MpiCluster
from tfdistr.launch.supervise import run_workers
from tfdistr.mpi import chooses_mpi, world
from tfdistr.parameter_server.launch import check_job, fit_on_parameter_servers
from tfdistr.parameter_server.options import ServerOptions
from tfdistr.peer_failure import is_peer_failure, report, reported_failure
from tfdistr.progress import make_display
from tfdistr.result import FitResult, load_history, load_model
from tfdistr.strategies import check_fits, check_options, count_shares, make_strategy

if TYPE_CHECKING:
    from tfdistr.strategy import MultiWorkerMirroredStrategy


def distributed_fit(
    model: Callable[[], Any],
    x: Any,
    y: Any = None,
    *,
    cluster: LocalCluster | MpiCluster | None = None,
    strategy: str = "multi_worker_mirrored",
    batch_size: int | None = 32,
    per_worker_batch_size: int | None = None,
    epochs: int = 1,
    steps_per_epoch: int | None = None,
    validation_data: Any = None,
    validation_steps: int | None = None,
    callbacks: Any = None,
    class_weight: Mapping[int, float] | None = None,
    sample_weight: Any = None,
    seed: int | None = None,
    shuffle: bool = True,
    drop_remainder: bool = False,
    scale_learning_rate: str = "none",
    warmup_epochs: int = 0,
    communication: str = "auto",
    gradient_dtype: str = "float32",
    verbose: str | int = "auto",
    run_dir: str | os.PathLike[str] | None = None,
    max_restarts: int = 0,
    **options: Any,
) -> FitResult:
    """Train a Keras 3 model on one or many workers, with the result that one worker would give.

    With ``cluster``, the workers are started, watched and ended. Without it, the call joins the
    cluster that the environment variable TF_CONFIG describes, as the task that it names, or the ranks
    that ``mpiexec`` has started: make the same call in every process of the cluster. With neither, the
    model is trained in this process.

    Args:
        model: Function without arguments that builds and compiles the model. It is called in every
            worker, inside the strategy's scope.
        x: Inputs: arrays (nested in tuples, lists or dictionaries; the first dimension counts the
            examples), a data frame, what ``load_dataset()`` returned, or a function. The function is
            called as ``x(ctx)`` (or ``x()``) in every worker and returns a ``tf.data.Dataset`` of
            examples, not batched, which tfdistr shuffles, batches and splits; see ``WorkerContext``. What
            can be looked up by its index (arrays, data sets, pipelines of tensors) is read and decoded by
            the worker that uses it only.
        y: Targets, where ``x`` is arrays.
        cluster: Where to train: ``local_cluster(workers=4)`` or ``mpi_cluster(["a", "b"])``.
        strategy: "multi_worker_mirrored", "mirrored" (several devices of one process), "one_device", or
            "parameter_server" (for ``local_cluster(workers=2, ps=1)``, or for the chief that TF_CONFIG
            describes, where `tfdistr server` runs the others).
        batch_size: Examples in a **global** batch: the number of workers does not change the result.
            None if the function ``x`` returns batches (of the global size) already.
        per_worker_batch_size: Examples in each worker's batch, instead of ``batch_size``: the global
            batch grows with the number of workers.
        epochs: Number of epochs.
        steps_per_epoch: Steps of an epoch; by default as many as one pass over the data has. With it,
            the data repeats as often as needed.
        validation_data: Like ``x``, or a tuple ``(x, y)`` or ``(x, y, sample_weight)`` of arrays.
        validation_steps: Steps of a validation; by default one pass.
        callbacks: List of Keras callbacks, or a function that returns one in each worker. Those that
            write, and those that ``chief_only()`` marked, run on the chief only; if one on any worker
            stops the training, all stop.
        class_weight: Weight in the loss of each class, by its number.
        sample_weight: Weight in the loss of each example, where ``x`` is arrays.
        seed: Seed of the initial weights, the order of the examples and random layers; drawn if None.
        shuffle: Whether each epoch has its own order of the training examples.
        drop_remainder: Whether the last batch of each pass over the training data is dropped where it is not
            full; see ``steps_per_epoch()``.
        scale_learning_rate: "linear" multiplies the learning rate by the number of workers, "sqrt" by
            its square root, "none" leaves it; for use with ``per_worker_batch_size``.
        warmup_epochs: Number of epochs over which the learning rate rises, step by step, to its scaled
            value; see ``WarmUp``.
        communication: What carries the gradients: "ring", "nccl" (one GPU per worker), "mpi" (``mpiexec``
            starts the workers of ``cluster``; without one it is for a script that ``mpiexec`` or ``srun`` has
            started), or "auto": MPI where it can be used (mpi4py and its mpiexec are there, the workers
            see no GPU), else what TensorFlow chooses.
        gradient_dtype: What the gradients are sent as between workers: "float32", or "bfloat16", which halves
            the bytes and rounds each gradient to 8 significant bits.
        verbose: "auto" (a progress display if the session is interactive), 0 (silent), 1 (progress
            display) or 2 (one line for each epoch).
        run_dir: Folder for logs and exchange; by default a temporary one (for ``mpi_cluster()`` in the
            working directory, for all hosts must see it), removed at exit unless the job failed.
        max_restarts: How often to start all workers again, from the beginning, after one has failed.
        options: What the strategy takes: ``devices`` of "mirrored", such as ``["gpu:0", "gpu:1"]`` (by
            default all GPUs); ``device`` of "one_device"; ``update`` of "parameter_server", "async" (each
            worker takes whole batches, and its gradient is applied when it comes) or "sync" (each batch
            is split over the workers, and the mean of their gradients is applied once), and with "sync"
            ``replicas_to_aggregate``, with how many workers' gradients a step is made.

    Returns:
        A ``FitResult`` with ``history``, ``metrics``, ``model``, ``params``, ``workers`` and ``run_dir``.

    Raises:
        ArgumentError: An argument is not of the form above.
        ClusterConfigError: TF_CONFIG is not valid.
        ClusterStartError: The workers did not find each other.
        DataShardError: The data cannot be split over the workers.
        WorkerFailedError: A worker failed; it names the worker and holds its traceback and log.

    Example:
        >>> def model():
        ...     model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, "softmax")])
        ...     model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        ...     return model
        >>> fit = tfdistr.distributed_fit(
        ...     model, tfdistr.load_dataset("digits"), cluster=tfdistr.local_cluster(workers=2), epochs=3)
        >>> fit.metrics["accuracy"] > 0.5
        True
    """
    config, num_workers = destination(cluster, strategy, communication, options)
    job = make_job(
        model, x, y, num_workers=num_workers, batch_size=batch_size,
        per_worker_batch_size=per_worker_batch_size, epochs=epochs, steps_per_epoch=steps_per_epoch,
        validation_data=validation_data, validation_steps=validation_steps, callbacks=callbacks,
        class_weight=class_weight, sample_weight=sample_weight, seed=seed, shuffle=shuffle,
        drop_remainder=drop_remainder, scale_learning_rate=scale_learning_rate, warmup_epochs=warmup_epochs,
        communication=communication, gradient_dtype=gradient_dtype, strategy=strategy, options=options,
    )  # fmt: skip
    restarts = whole("max_restarts", max_restarts, minimum=0)
    display = make_display(verbose)
    try:
        if cluster is None:
            return fit_here(job, config, display.event)
        command = [sys.executable, "-m", "tfdistr.worker"]
        folder = make_run_dir(run_dir, cluster)
        return fit_on_cluster(job, cluster, command, folder, display.event, max_restarts=restarts)
    finally:
        display.close()


def destination(
    cluster: Any, strategy: Any, communication: Any = "auto", options: Mapping[str, Any] | None = None
) -> tuple[ClusterConfig | None, int]:
    """Where a job is to train.

    Returns:
        The cluster of TF_CONFIG that this process joins, if there is one and no ``cluster`` is given, and the
        number of workers (of devices, if one worker has several).
    """
    chosen = check_options(strategy, options or {})
    one_of("communication", communication, COMMUNICATION)
    if cluster is None:
        if chooses_mpi(communication):
            workers = int(world().Get_size())
            check_fits(strategy, workers, 0, "the launcher of this process")
            return None, count_shares(strategy, workers, chosen)
        config = cluster_from_env()
        if strategy != _SERVERS:
            _check_trains(config)
        workers = config.num_workers if config else 1
        servers = len(config.jobs.get("ps", ())) if config else 0
        check_fits(strategy, workers, servers, "TF_CONFIG" if config else "no cluster and no TF_CONFIG")
        if strategy == _SERVERS:
            ServerOptions(**chosen).check_workers(workers)
        return config, count_shares(strategy, workers, chosen)
    if not isinstance(cluster, LocalCluster | MpiCluster):
        raise ArgumentError(
            "`cluster` must be what local_cluster() or mpi_cluster() returns, or be left out.",
            received=f"{type(cluster).__module__}.{type(cluster).__name__}",
            fix="Pass cluster=local_cluster(workers=2), or set TF_CONFIG to join a cluster by hand.",
        )
    check_fits(strategy, cluster.workers, getattr(cluster, "ps", 0), "the cluster")
    if strategy == _SERVERS:
        ServerOptions(**chosen).check_workers(cluster.workers)
    else:
        choose_carrier(cluster, communication)  # before anything is written or started
    return None, count_shares(strategy, cluster.workers, chosen)


def fit_on_cluster(
    job: Job,
    cluster: LocalCluster | MpiCluster,
    command: Sequence[str],
    run_dir: Path,
    on_event: Callable[[dict[str, Any]], None],
    *,
    build: Callable[[], Any] | None = None,
    max_restarts: int = 0,
) -> FitResult:
    """Start the workers of ``cluster`` with ``command``, wait for them, and gather the result.

    Args:
        job: What to train.
        cluster: Where.
        command: Program and first arguments of a worker; run directory and index are appended.
        run_dir: An empty folder.
        on_event: Called on this thread with every event of the job.
        build: Builds the model in this process; the job's own function by default.
        max_restarts: How often to start again, from the beginning, after a failure.
    """
    if job.strategy == _SERVERS:
        assert isinstance(cluster, LocalCluster)
        try:
            return fit_on_parameter_servers(
                job, cluster, command, run_dir, on_event, options=ServerOptions(**job.options), build=build,
                max_restarts=max_restarts,
            )  # fmt: skip
        except TfdistrError:
            _temporary.discard(run_dir)
            raise
    carrier = choose_carrier(cluster, job.communication)
    job = replace(job, communication=carrier.communication, start_timeout=cluster.start_timeout)
    job.save(run_dir)
    carrier_path(run_dir).write_text(str(carrier))
    for attempt in range(max_restarts + 1):
        try:
            statuses = run_workers(carrier.cluster, command, run_dir, on_event)
            break
        except TfdistrError as error:
            if attempt == max_restarts or not isinstance(error, WorkerFailedError):
                _temporary.discard(run_dir)  # its logs say more
                raise
            reason = error.message.partition("\n")[0]
            on_event({"event": "restart", "worker": error.worker, "time": time.time(), "reason": reason})
    return FitResult(
        history=load_history(run_dir),
        params={**job.params, "workers": cluster.workers},
        workers=[vars(status) for status in statuses],
        run_dir=str(run_dir),
        _make_model=lambda: load_model(build or job.model, run_dir),
    )


def fit_here(
    job: Job,
    config: ClusterConfig | None,
    on_event: Callable[[dict[str, Any]], None],
    *,
    on_seed: Callable[[int], None] = lambda seed: None,
) -> FitResult:
    """Train in this process: alone, or as the task of a cluster that TF_CONFIG describes.

    Args:
        job: What to train.
        config: The cluster to join.
        on_event: Called on this thread with every event of the job.
        on_seed: Called with the seed, which is the chief's in a cluster, before the job's functions are.
    """
    if job.strategy == _SERVERS:
        assert config is not None
        return _fit_as_chief(job, config, on_event, on_seed)
    strategy: Any = None
    if job.strategy != "multi_worker_mirrored":
        strategy = make_strategy(job.strategy, **job.strategy_options)
    elif config is not None or chooses_mpi(job.communication):
        strategy = _joined_strategy(config.to_json() if config else "", job.communication)
    from tfdistr.training import train

    index = strategy.worker_index if strategy else 0

    def send(kind: str, **fields: Any) -> None:
        on_event({"event": kind, "worker": index, "time": time.time(), **fields})

    try:
        if strategy is not None:
            _agree(job, strategy)
            job = replace(job, seed=_chiefs(job.seed, strategy))
        on_seed(job.seed)
        trained = train(job, strategy, send)
    except Exception as error:
        if strategy is not None and is_peer_failure(error):
            raise reported_failure(error) or error from None
        if strategy is not None and not isinstance(error, JobMismatchError):  # which all workers raise
            strategy.report_failure(report(index, error))
        raise
    worker = {"index": index, "host": socket.gethostname(), "pid": os.getpid(), "status": "done",
              "seconds": trained.seconds, "log": None}  # fmt: skip
    return FitResult(
        history=trained.history,
        params={**job.params, "workers": strategy.num_workers if strategy else 1},
        workers=[worker],
        run_dir=None,
        _make_model=lambda: trained.model,
    )


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
        params={**job.params, **trained.report, "workers": config.num_workers},
        workers=[chief],
        run_dir=None,
        _make_model=lambda: trained.model,
    )


def make_run_dir(run_dir: str | os.PathLike[str] | None, cluster: Any = None) -> Path:
    """The folder of a job: ``run_dir``, or a temporary one that is removed at exit.

    That of a cluster of several hosts is in the working directory, which they are likelier to share.

    Raises:
        ArgumentError: ``run_dir`` is there and not empty.
    """
    if run_dir is None:
        parent = os.getcwd() if isinstance(cluster, MpiCluster) else None
        folder = Path(tempfile.mkdtemp(prefix="tfdistr-", dir=parent))
        _temporary.add(folder)
        return folder
    folder = Path(run_dir).expanduser().absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArgumentError(
            "`run_dir` must be a new or empty folder, so that no earlier run is overwritten.",
            received=str(folder),
            fix="Name another folder, or remove this one.",
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


_SERVERS = "parameter_server"
_temporary: set[Path] = set()


@atexit.register
def _remove_temporary() -> None:
    for folder in _temporary:
        shutil.rmtree(folder, ignore_errors=True)


def _check_trains(config: ClusterConfig | None) -> None:
    if config is not None and config.worker_index is None:
        raise ClusterConfigError(
            "distributed_fit() joins a cluster as a chief or a worker.",
            received=f"the task {config.task} in TF_CONFIG",
            fix="Call it in the processes of the chief and the workers only.",
        )


@lru_cache(maxsize=1)
def _joined_strategy(config: str, communication: str) -> MultiWorkerMirroredStrategy:
    """The strategy of this process: TensorFlow starts a server for it, once."""
    from tfdistr.strategy import MultiWorkerMirroredStrategy

    return MultiWorkerMirroredStrategy(communication)


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

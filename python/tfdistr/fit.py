"""``distributed_fit()``: one call that trains a Keras 3 model on one or many workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tfdistr.arguments import COMMUNICATION, one_of
from tfdistr.cluster import ClusterConfig
from tfdistr.errors import ArgumentError, ClusterConfigError, JobStoppedError
from tfdistr.fit_here import fit_here
from tfdistr.fit_on_cluster import fit_on_cluster
from tfdistr.job_arguments import make_job
from tfdistr.launch.carrier import choose_carrier
from tfdistr.launch.local import WORKER, LocalCluster
from tfdistr.launch.mpi import MpiCluster
from tfdistr.model_parallel.places import check_placement, count_workers
from tfdistr.mpi import chooses_mpi, world
from tfdistr.mpi_ranks import ranks
from tfdistr.parameter_server.options import ServerOptions
from tfdistr.preflight import cluster_to_join
from tfdistr.progress import make_display
from tfdistr.recovery.options import check_recovery
from tfdistr.recovery.run import take_up
from tfdistr.result import FitResult
from tfdistr.run_dir import make_run_dir
from tfdistr.strategies import STRATEGIES, check_fits, check_options, count_shares


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
    checkpoint_every: int | str | None = None,
    resume: bool = False,
    max_restarts: int = 0,
    min_workers: int | None = None,
    start_timeout: float | None = None,
    heartbeat_timeout: float = 30.0,
    step_timeout: float | None = None,
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
        strategy: "multi_worker_mirrored", "mirrored" (several devices of one process), "one_device",
            "parameter_server" (for ``local_cluster(workers=2, ps=1)``, or for the chief that TF_CONFIG
            describes, where `tfdistr server` runs the others), or "model_parallel" (the layers of one model
            are on several devices, or on the workers of a cluster).
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
            see no GPU), else what TensorFlow chooses. The result says what was used.
        gradient_dtype: What the gradients are sent as between workers: "float32", or "bfloat16", which halves
            the bytes and rounds each gradient to 8 significant bits.
        verbose: "auto" (a progress display if the session is interactive), 0 (silent), 1 (progress
            display) or 2 (one line for each epoch).
        run_dir: Folder for logs and exchange; by default a temporary one (for ``mpi_cluster()`` in the
            working directory, for all hosts must see it), removed at exit unless the job failed.
        checkpoint_every: How often to write a checkpoint into ``run_dir``: after so many steps, or "epoch". A
            checkpoint has all that the training consists of, so that what goes on from it ends with the same
            bits. None for never, or, with ``max_restarts`` or ``resume``, for "epoch".
        resume: Whether to go on with the run that is in ``run_dir``, which failed, was cancelled or told to
            end, or had fewer epochs. It must be one of the same job. If the folder is new or empty, the job
            begins; if the run is complete, its result is returned.
        max_restarts: How often to start all workers of ``cluster`` again, from the last checkpoint, after one
            has failed. Restarts after which there was a newer checkpoint do not count.
        min_workers: With how few workers the job may go on when ``max_restarts`` is used up: without the one
            that failed then, and with the same global batch. None to give up instead.
        start_timeout: Seconds within which all workers must have come; by default what ``cluster`` says, or
            300.
        heartbeat_timeout: Seconds without a sign of life after which a worker counts as gone: one that is
            halted, or whose machine or network has failed. The processes of a job must have the same.
        step_timeout: Seconds without a step, of training or validation, after which a worker fails with what
            its main thread is at. It counts what comes before the first step, callbacks and checkpoints, too.
            None for no limit.
        options: What the strategy takes: ``devices`` of "mirrored", such as ``["gpu:0", "gpu:1"]`` (by
            default all GPUs); ``device`` of "one_device"; ``update`` of "parameter_server", "async" (each
            worker takes whole batches, and its gradient is applied when it comes) or "sync" (each batch
            is split over the workers, and the mean of their gradients is applied once), and with "sync"
            ``replicas_to_aggregate``, with how many workers' gradients a step is made; ``placement`` of
            "model_parallel", such as ``{"dense_1": "worker 0", "dense_2": "worker 1"}``; see
            ``ModelParallelStrategy``.

    Returns:
        A ``FitResult`` with ``history``, ``metrics``, ``model``, ``params``, ``workers`` and ``run_dir``.
        ``params["communication"]`` is what was used: "mpi", "ring", "nccl", or "none" for one worker and for
        strategies whose workers exchange no gradients.

    Raises:
        ArgumentError: An argument is not of the form above.
        ClusterConfigError: TF_CONFIG is not valid.
        ClusterStartError: The workers did not find each other.
        DataShardError: The data cannot be split over the workers.
        WorkerFailedError: A worker failed; it names the worker and holds its traceback and log.
        JobStoppedError: With checkpoints: this process or a worker got SIGTERM, with which Slurm and
            Kubernetes say that they will end it. A checkpoint was written after the step that was being made.
            A script that does not catch the error ends with exit status 75.

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
    recovery = check_recovery(
        checkpoint_every, resume, max_restarts, min_workers, run_dir, strategy=strategy, cluster=cluster
    )
    job = make_job(
        model, x, y, num_workers=num_workers, batch_size=batch_size,
        per_worker_batch_size=per_worker_batch_size, epochs=epochs, steps_per_epoch=steps_per_epoch,
        validation_data=validation_data, validation_steps=validation_steps, callbacks=callbacks,
        class_weight=class_weight, sample_weight=sample_weight, seed=seed, shuffle=shuffle,
        drop_remainder=drop_remainder, scale_learning_rate=scale_learning_rate, warmup_epochs=warmup_epochs,
        communication=communication, gradient_dtype=gradient_dtype, strategy=strategy, options=options,
        recovery=recovery, start_timeout=start_timeout, heartbeat_timeout=heartbeat_timeout,
        step_timeout=step_timeout,
    )  # fmt: skip
    if cluster is not None and start_timeout is not None:
        cluster = replace(cluster, start_timeout=job.start_timeout)
    display = make_display(verbose)
    try:
        if cluster is None:
            return fit_here(job, config, display.event, run_dir=run_dir)
        folder = make_run_dir(run_dir, cluster, resume=recovery.resume)
        job = take_up(job, folder, cluster.workers)
        return fit_on_cluster(job, cluster, WORKER, folder, display.event)
    except JobStoppedError as stopped:
        display.close()
        print(stopped, file=sys.stderr)  # where nobody catches it, Python ends without a word
        raise
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
    kind = STRATEGIES[strategy]
    one_of("communication", communication, COMMUNICATION)
    if cluster is None:
        if chooses_mpi(communication):
            # What the launcher says, if it does: a rank whose arguments are refused has not started MPI.
            workers = ranks() if ranks() > 1 else int(world().Get_size())
            check_fits(strategy, workers, 0, "the launcher of this process", peers=True)
            return None, count_shares(strategy, workers, chosen)
        config = cluster_to_join()
        if kind.client:
            check_placement(chosen.get("placement"), None if config is None else count_workers(config))
            return config, 1
        if not kind.servers:
            _check_trains(config)
        workers = config.num_workers if config else 1
        servers = len(config.jobs.get("ps", ())) if config else 0
        where = "TF_CONFIG" if config else "no cluster and no TF_CONFIG"
        check_fits(strategy, workers, servers, where, peers=config is not None and "chief" not in config.jobs)
        if kind.servers:
            ServerOptions(**chosen).check_workers(workers)
        return config, count_shares(strategy, workers, chosen)
    if not isinstance(cluster, LocalCluster | MpiCluster):
        raise ArgumentError(
            "`cluster` must be what local_cluster() or mpi_cluster() returns, or be left out.",
            received=f"{type(cluster).__module__}.{type(cluster).__name__}",
            fix="Pass cluster=local_cluster(workers=2), or set TF_CONFIG to join a cluster by hand.",
        )
    peers = isinstance(cluster, MpiCluster)
    check_fits(strategy, cluster.workers, getattr(cluster, "ps", 0), "the cluster", peers=peers)
    if kind.servers:
        ServerOptions(**chosen).check_workers(cluster.workers)
    elif kind.client:
        check_placement(chosen.get("placement"), cluster.workers)
    else:
        choose_carrier(cluster, communication)  # before anything is written or started
    return None, count_shares(strategy, cluster.workers, chosen)


def _check_trains(config: ClusterConfig | None) -> None:
    if config is not None and config.worker_index is None:
        raise ClusterConfigError(
            "distributed_fit() joins a cluster as a chief or a worker.",
            received=f"the task {config.task} in TF_CONFIG",
            fix="Call it in the processes of the chief and the workers only.",
        )

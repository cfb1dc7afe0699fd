"""``distributed_fit()``: one call that trains a Keras 3 model on one or many workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from tfdistr.clusters.cluster import Cluster
from tfdistr.errors import JobStoppedError
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.progress import make_display
from tfdistr.jobs.result import FitResult
from tfdistr.jobs.run import run_fit

if TYPE_CHECKING:
    import keras


def distributed_fit(
    model: Callable[[], keras.Model] | keras.Model | FitResult,
    x: Any,
    y: Any = None,
    *,
    cluster: Cluster | None = None,
    strategy: str = "multi_worker_mirrored",
    batch_size: int | None = 32,
    per_worker_batch_size: int | None = None,
    epochs: int = 1,
    steps_per_epoch: int | None = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int | Collection[int] = 1,
    initial_epoch: int = 0,
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
    virtual_workers: int | None = None,
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
    """Train a Keras 3 model on one or many workers.

    The result is the same as with one worker. With ``cluster``, this call starts, watches and ends the
    workers. Without ``cluster``, the call joins the cluster that the environment variable TF_CONFIG
    describes, as the task that it names, or the processes that ``mpiexec`` or ``srun`` has started. Make the
    same call in every process of the cluster. Without any of these, this process trains the model.

    Args:
        model: Function without arguments that builds and compiles the model. It is called in every
            worker, inside the strategy's scope. Or a compiled model: the workers get its architecture, its
            weights, its optimizer with its state, and the arguments of ``compile``. Afterwards the model has
            the trained weights and the state of the optimizer, as after ``model.fit()``. Its classes and
            functions must be at the top level of a script or module. Or a ``FitResult``: training continues
            with a copy of its model. Or ``r_function("model.R", "build")``, a function of an R file: then the
            workers are R processes. ``x``, ``validation_data``, ``callbacks`` and ``placement`` may be such
            functions, too.
        x: Inputs: arrays (nested in tuples, lists or dictionaries; the first dimension counts the examples),
            a data frame, a table of Arrow, the result of ``load_dataset()``, an object that gives examples or
            batches, or a function. The function is called as ``x(ctx)`` (or ``x()``) in every worker, and
            returns a ``tf.data.Dataset`` of single examples, not of batches. tfdistr shuffles, batches and
            splits it; see ``WorkerContext``. If examples can be looked up by their index (arrays, data sets,
            pipelines of tensors), only the worker that uses an example reads and decodes it. The object is a
            ``tf.data.Dataset`` (of examples, or of batches), a ``keras.utils.PyDataset``, or a generator,
            which give batches of the global size. A generator itself trains in this process only; the
            function that makes it can go to workers. Each worker makes the whole batches of Python code, on
            the thread that trains, and takes its rows. Floating-point numbers of arrays get Keras's type in a
            batch, float32 by default; whole numbers and logical values keep their types. A data frame becomes
            a matrix if all columns are numbers or logical values, else a dictionary of columns. Dates, masked
            values, missing text, and tensors that are ragged or sparse are errors.
        y: Targets, if ``x`` is arrays.
        cluster: Where to train: ``local_cluster(workers=4)``, ``ssh_cluster(["a", "b"])``,
            ``ssh_cluster(["a", "b"])``, ``slurm_cluster(nodes=2)`` or ``ray_cluster(2)``.
        strategy: "multi_worker_mirrored", "mirrored" (several devices of one process), "one_device",
            "parameter_server" or "model_parallel" (the layers of one model are on several devices, or on the
            workers of a cluster). "parameter_server" needs ``local_cluster(workers=2, ps=1)``, or a TF_CONFIG
            that makes this process the chief, while `tfdistr server` runs the other tasks.
        batch_size: Examples in a **global** batch: the number of workers does not change the result.
            None if the function ``x`` already returns batches (of the global size).
        per_worker_batch_size: Examples in each worker's batch, instead of ``batch_size``: the global
            batch grows with the number of workers.
        epochs: Number of epochs, with those before ``initial_epoch``.
        steps_per_epoch: Steps of an epoch; by default, the steps of one pass over the data. If it is set, the
            data repeats as often as needed.
        validation_split: Fraction of the examples, at the end of arrays ``x``, for the validation instead of
            the training.
        validation_data: Like ``x``, or a tuple ``(x, y)`` or ``(x, y, sample_weight)`` of arrays.
        validation_steps: Steps of a validation; by default, one pass.
        validation_batch_size: Examples in a global batch of the validation; by default, as in training.
        validation_freq: Every how many epochs there is a validation, or the numbers (from 1) of the epochs
            with one.
        initial_epoch: The first epoch, counted from 0: the training continues after this number of epochs,
            with the examples in the order that these epochs have.
        callbacks: List of Keras callbacks, or a function that returns a list in each worker. Callbacks that
            write, and callbacks marked by ``chief_only()``, run on the chief only. If a callback on any
            worker stops the training, all workers stop.
        class_weight: Weight of each class in the loss, by the number of the class.
        sample_weight: Weight of each example in the loss, if ``x`` is arrays.
        seed: Seed of the initial weights, the order of the examples and the random layers; random if None.
        shuffle: Whether each epoch has its own order of the training examples.
        drop_remainder: Whether the last batch of each pass over the training data is dropped if it is not
            full; see ``steps_per_epoch()``.
        scale_learning_rate: "linear" multiplies the learning rate by the number of workers, "sqrt" by the
            square root of that number, "none" leaves it; for use with ``per_worker_batch_size``.
        warmup_epochs: Number of epochs over which the learning rate rises, step by step, to its scaled
            value; see ``WarmUp``.
        communication: What carries the gradients: "ring", "nccl" (one GPU per worker), "mpi" or "auto".
            "auto" is MPI if all workers have the same MPICH, see no GPU, and can connect to each other. Else
            it is TensorFlow's ring, and the log of the chief says why. The result names the communication.
        gradient_dtype: The type of the gradients between workers: "float32", or "bfloat16", which halves the
            bytes and rounds each gradient to 8 significant bits.
        virtual_workers: Number of shares of each global batch, at least the number of workers. The result
            then has the same bits on any number of workers. It depends on ``virtual_workers`` instead,
            because each share is computed by itself, with one thread, and sums have a fixed order. None for
            the faster way, where results of different numbers of workers differ by rounding, which a long
            training enlarges.
        verbose: "auto" (a progress display if the session is interactive), 0 (silent), 1 (progress
            display) or 2 (one line for each epoch).
        run_dir: Folder for logs and exchange; by default, a temporary folder, which is removed at exit unless
            the job failed. For clusters of several hosts it is in the working directory, which all hosts
            must see. Or the URL of a store, such as "s3://bucket/run" (pip install 'tfdistr[s3]') or
            "gs://bucket/run" ('tfdistr[gcs]'): checkpoints are uploaded while the job trains, and logs and
            results at its end. Another machine continues from there with ``resume``. The job then has a
            temporary folder, too. Without ``cluster``, only jobs with checkpoints use ``run_dir``.
        checkpoint_every: How often to write a checkpoint into ``run_dir``: a number of steps, or "epoch". A
            checkpoint has the whole state of the training, so that a run that continues from it ends with the
            same bits (not with asynchronous parameter servers). Models with their own loop or ``fit()``
            take "epoch" only. None means never; with ``max_restarts`` or ``resume`` it means "epoch".
        resume: Whether to resume the run in ``run_dir``, which failed, was cancelled, was preempted, or had
            fewer epochs. It must be a run of the same job; R may have begun it. If the folder is new or
            empty, the job begins. If the run is complete, its result is returned.
        max_restarts: How often to restart all workers of ``cluster`` from the last checkpoint after a worker
            has failed. A restart that led to a newer checkpoint does not count.
        min_workers: The lowest number of workers with which the job may continue after ``max_restarts``
            restarts. It then continues without the failed worker, with the same global batch. None: give up.
        start_timeout: Seconds within which all workers must have come; by default, the value of ``cluster``,
            or 300.
        heartbeat_timeout: Seconds without a heartbeat after which a worker counts as gone: a worker that
            is stopped, or whose machine or network has failed. The value must be the same in all processes.
        step_timeout: Seconds without a step, of training or validation, after which a worker fails. The error
            shows what its main thread is doing. Callbacks, checkpoints and all work before the first step
            count, too. None for no limit.
        options: The options of the strategy: ``devices`` of "mirrored", such as ``["gpu:0", "gpu:1"]`` (by
            default all GPUs); ``device`` of "one_device"; ``update`` and ``replicas_to_aggregate`` of
            "parameter_server"; ``placement`` of "model_parallel", such as
            ``{"dense_1": "worker 0", "dense_2": "worker 1"}``; see ``ModelParallelStrategy``. With the update
            "async", each worker takes whole batches, and its gradient is applied when it arrives. With
            "sync", each batch is split over the workers, and the mean of their gradients is applied once;
            ``replicas_to_aggregate`` is the number of workers whose gradients make a step.

    Returns:
        A ``FitResult`` with ``history``, ``metrics``, ``model``, ``params``, ``workers`` and ``run_dir``.
        ``params["communication"]`` is the communication of the run: "mpi", "ring", "nccl", or "none" for one
        worker and for strategies whose workers exchange no gradients.

    Raises:
        ArgumentError: An argument is not of the form above.
        ClusterConfigError: TF_CONFIG is not valid.
        ClusterStartError: The workers did not find each other.
        DataShardError: The data cannot be split over the workers.
        JobMismatchError: The processes of a cluster that were started by hand would train different jobs.
        VersionError: TensorFlow or Keras has a version that tfdistr does not work with.
        WorkerFailedError: A worker failed; the error names the worker and holds its traceback and log.
        CheckpointError: With a store as ``run_dir``: at the end, not all of the run is there. Or another job
            has begun to write to the same run. Or the disk of ``run_dir`` is full or read-only.
        JobStoppedError: With checkpoints: this process or a worker got SIGTERM, with which Slurm and
            Kubernetes announce a preemption. A checkpoint was written after the current step. A script that
            does not catch the error ends with exit status 75.
        StepTimeoutError: This process trains, and has made no step for ``step_timeout`` seconds.

    Warns:
        TfdistrWarning: Something that the user should know, once, though several workers say it. Warnings of
            the user's code in a worker arrive so, too, with the worker. If a filter makes a warning an error,
            the job ends, and so do its workers.
        BatchLossWarning: The gradient of the model is no mean over the examples of a batch, so the result on
            several workers is not that of one worker.

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
    display = make_display(verbose)
    try:
        return run_fit(
            Caller(display.event),
            model=model, x=x, y=y, cluster=cluster, strategy=strategy, batch_size=batch_size,
            per_worker_batch_size=per_worker_batch_size, epochs=epochs, steps_per_epoch=steps_per_epoch,
            validation_split=validation_split, validation_data=validation_data,
            validation_steps=validation_steps, validation_batch_size=validation_batch_size,
            validation_freq=validation_freq, initial_epoch=initial_epoch, callbacks=callbacks,
            class_weight=class_weight, sample_weight=sample_weight, seed=seed, shuffle=shuffle,
            drop_remainder=drop_remainder, scale_learning_rate=scale_learning_rate,
            warmup_epochs=warmup_epochs, communication=communication, gradient_dtype=gradient_dtype,
            virtual_workers=virtual_workers, run_dir=run_dir, checkpoint_every=checkpoint_every,
            resume=resume, max_restarts=max_restarts, min_workers=min_workers, start_timeout=start_timeout,
            heartbeat_timeout=heartbeat_timeout, step_timeout=step_timeout, options=options,
        )  # fmt: skip
    except JobStoppedError as stopped:
        display.close()
        print(stopped, file=sys.stderr)  # if nobody catches it, Python ends without a message
        raise
    finally:
        display.close()

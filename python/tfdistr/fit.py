"""``distributed_fit()``: one call that trains a Keras 3 model on one or many workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from tfdistr.clusters.cluster import Cluster
from tfdistr.errors import JobStoppedError
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.progress import make_display
from tfdistr.jobs.result import FitResult
from tfdistr.jobs.run import run_fit
from tfdistr.jobs.strategies import Strategy
from tfdistr.training.per_worker import PerWorker
from tfdistr.training.recovery_options import Recovery

if TYPE_CHECKING:
    import keras


def distributed_fit(
    model: Callable[[], keras.Model] | keras.Model | FitResult,
    x: object = None,
    y: object = None,
    batch_size: int | PerWorker | None = None,
    epochs: int = 1,
    verbose: str | int = "auto",
    callbacks: object = None,
    validation_split: float = 0.0,
    validation_data: object = None,
    shuffle: bool = True,
    class_weight: Mapping[int, float] | None = None,
    sample_weight: object = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int | Collection[int] = 1,
    *,
    seed: int | None = None,
    virtual_workers: int | None = None,
    drop_remainder: bool = False,
    cluster: Cluster | None = None,
    strategy: str | Strategy = "multi_worker_mirrored",
    run_dir: str | os.PathLike[str] | None = None,
    checkpoint_every: int | str | None = None,
    keep_checkpoints: int = 2,
    resume: bool = False,
    failures: Recovery | None = None,
) -> FitResult:
    """Train a Keras 3 model on one or many workers.

    The result is the same as with one worker. The arguments from ``x`` to ``validation_freq`` are those of
    Keras's ``fit()``, in its order. With ``cluster``, this call starts, watches and ends the workers. Without
    ``cluster``, the call joins the cluster that the environment variable TF_CONFIG describes, as the task
    that it names, or the processes that ``mpiexec`` or ``srun`` has started. Make the same call in every
    process of the cluster. Without any of these, this process trains the model.

    The arguments are in five groups.

    * What to train: ``model``, ``x`` to ``validation_freq``, ``seed``, ``virtual_workers``,
      ``drop_remainder``.
    * Where to train: ``cluster``.
    * How to train: ``strategy``.
    * Batches that grow with the workers: ``batch_size=per_worker(64)``.
    * Where the run is stored, and what happens when something fails: ``run_dir``, ``checkpoint_every``,
      ``keep_checkpoints``, ``resume``, ``failures``.

    Args:
        model: Function without arguments that builds and compiles the model. It is called in every
            worker, inside the strategy's scope. Or a compiled model: the workers get its architecture, its
            weights, its optimizer with its state, and the arguments of ``compile``. Afterwards the model has
            the trained weights and the state of the optimizer, as after ``model.fit()``. Its classes and
            functions must be at the top level of a script or module. Or a ``FitResult``: training continues
            with a copy of its model. Or ``r_function("model.R", "build")``, a function of an R file: then the
            workers are R processes. ``x``, ``validation_data``, ``callbacks`` and the placement of
            ``model_parallel()`` may be such functions.
        x: Inputs: arrays (nested in tuples, lists or dictionaries; the first dimension counts the examples),
            a data frame, a table of Arrow, the result of ``load_dataset()``, a ``tf.data.Dataset``, a
            ``keras.utils.PyDataset``, a generator, or a function. The function is called as ``x(ctx)`` (or
            ``x()``) in every worker, and returns a ``tf.data.Dataset``: of batches of the global size, or,
            with ``batch_size``, of single examples, which tfdistr shuffles, batches and splits; see
            ``WorkerContext``. If examples can be looked up by their index (arrays, data sets, pipelines of
            tensors), only the worker that uses an example reads and decodes it. A ``PyDataset`` and a
            generator give batches of the global size. A generator itself trains in this process only; the
            function that makes it can go to workers. Each worker makes the whole batches of Python code, on
            the thread that trains, and takes its rows. Floating-point numbers of arrays get Keras's type in a
            batch, float32 by default; whole numbers and logical values keep their types. A data frame becomes
            a matrix if all columns are numbers or logical values, else a dictionary of columns. Dates, masked
            values, missing text, and tensors that are ragged or sparse are errors.
        y: Targets, if ``x`` is arrays.
        batch_size: Examples in a **global** batch: the number of workers does not change the result. None
            means 32 for single examples. A data set of batches, a ``PyDataset`` and a generator keep their
            batches, and the data set that a function returns is taken as ready batches. Or
            ``per_worker(64)``, for a global batch that grows with the number of workers.
        epochs: Number of epochs, with those before ``initial_epoch``.
        verbose: "auto" (1 in a terminal or a notebook, else 2), 0 (silent), 1 (progress display) or 2 (one
            line for each epoch).
        callbacks: List of Keras callbacks, or a function that returns a list in each worker. Callbacks that
            write, and callbacks marked by ``chief_only()``, run on the chief only. If a callback on any
            worker stops the training, all workers stop. The functions of ``in_session()`` run in this
            process.
        validation_split: Fraction of the examples, at the end of arrays ``x``, for the validation instead of
            the training.
        validation_data: Like ``x``, or a tuple ``(x, y)`` or ``(x, y, sample_weight)`` of arrays.
        shuffle: Whether each epoch has its own order of the training examples.
        class_weight: Weight of each class in the loss, by the number of the class.
        sample_weight: Weight of each example in the loss, if ``x`` is arrays.
        initial_epoch: The first epoch, counted from 0: the training continues after this number of epochs,
            with the examples in the order that these epochs have.
        steps_per_epoch: Steps of an epoch; by default, the steps of one pass over the data. If it is set, the
            data repeats as often as needed.
        validation_steps: Steps of a validation; by default, one pass.
        validation_batch_size: Examples in a global batch of the validation; by default, as in training.
        validation_freq: Every how many epochs there is a validation, or the numbers (from 1) of the epochs
            with one.
        seed: Seed of the initial weights, the order of the examples and the random layers; random if None.
        virtual_workers: Number of shares of each global batch, at least the number of workers. The result
            is then bitwise identical on any number of workers. It depends on ``virtual_workers`` instead,
            because each share is computed by itself, with one thread, and sums have a fixed order. None for
            the faster way, where results of different numbers of workers differ by rounding, which a long
            training enlarges.
        drop_remainder: Whether the last batch of each pass over the training data is dropped if it is not
            full; see ``steps_per_epoch()``.
        cluster: Where to train: ``local_cluster(workers=4)``, ``ssh_cluster(["a", "b"])``,
            ``slurm_cluster(nodes=2)`` or ``ray_cluster(2)``.
        strategy: The name of a strategy, or an object with its options: ``multi_worker_mirrored()``, equal
            workers; ``mirrored()``, several devices of one process; ``one_device()``;
            ``parameter_server()``, weights on servers; or ``model_parallel(placement)``, layers on several
            devices or workers.
        run_dir: Folder for logs and exchange; by default, a temporary folder, which is removed at exit unless
            the job failed. For clusters of several hosts it is in the working directory, which all hosts
            must see. Or the URL of a store, such as "s3://bucket/run" (pip install 'tfdistr[s3]') or
            "gs://bucket/run" ('tfdistr[gcs]'): checkpoints are uploaded while the job trains, and logs and
            results at its end. Another machine continues from there with ``resume``. The job then has a
            temporary folder, too. Without ``cluster``, only jobs with checkpoints use ``run_dir``.
        checkpoint_every: How often to write a checkpoint into ``run_dir``: a number of steps, or "epoch". A
            checkpoint has the whole state of the training, so that a run that continues from it ends with a
            bitwise identical result (not with asynchronous parameter servers). Models with their own loop or
            ``fit()`` take "epoch" only. None means never; with restarts or ``resume`` it means "epoch".
        keep_checkpoints: How many checkpoints are kept: the last ones. ``replay()`` starts at them. The last
            one with finite weights is never removed.
        resume: Whether to resume the run in ``run_dir``, which failed, was cancelled, was preempted, or had
            fewer epochs. It must be a run of the same job; R may have begun it. If the folder is new or
            empty, the job begins. If the run is complete, its result is returned.
        failures: What happens when a worker fails or makes no progress:
            ``on_failure(max_restarts=3, step_timeout=600)``. By default the first failure ends the job, and a
            step may take any time.

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
        NotFiniteError: With ``on_failure(nan="explain")``, the loss or the gradients of a step are not
            finite. The error says why.
        StepTimeoutError: This process trains, and has made no step for the ``step_timeout`` of ``failures``.

    Warns:
        TfdistrWarning: Something that the user should know, once, though several workers say it. Warnings of
            the user's code in a worker arrive so, too, with the worker. If a filter makes a warning an error,
            the job ends, and so do its workers.
        BatchLossWarning: A step of the model uses several rows of a batch at once, so the result on several
            workers is not that of one worker.

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
    given = dict(locals())  # a debugger would add names to locals()
    display = make_display(given.pop("verbose"))
    try:
        return run_fit(Caller(display.event), **given)
    except JobStoppedError as stopped:
        display.close()
        print(stopped, file=sys.stderr)  # if nobody catches it, Python ends without a message
        raise
    finally:
        display.close()

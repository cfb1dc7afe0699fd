"""``MultiWorkerMirroredStrategy``: Keras 3 on many workers, with the result of one.

A subclass of TensorFlow's strategy is enough for Keras's own ``fit``, ``evaluate`` and ``predict``:
nothing in Keras or TensorFlow is patched. What differs from the stock class, where a worker has one
replica (one process per device):

* The replica runs on the calling thread, not on a thread of its own. R closures can then be traced.
* A dataset is split batch by batch: each worker takes its rows of every global batch, so that all
  workers make the same steps as one worker would, and none has to ask whether its peers have data.
* Gradients are weighted by the examples that are behind them, and clipped after they were summed.
* Per-step logs are the worker's own; they cost no collective. The metrics of an epoch are global.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdistr import _private
from tfdistr.arguments import one_of
from tfdistr.cluster import cluster_from_env, split_address
from tfdistr.collectives import BYTES_PER_PACK, Collectives, TensorFlowCollectives
from tfdistr.data.shard import distribute_batches, is_share, leave_to_tensorflow
from tfdistr.errors import ClusterStartError

log = logging.getLogger("tfdistr")

COMMUNICATION = ("auto", "ring", "nccl")

#: Seconds that a worker which is done waits for its peers at exit, before it leaves all the same.
EXIT_TIMEOUT = 60.0

_MISSING_TASKS = re.compile(r"timed out task names:\n((?:/job:\S+\n?)+)")
_TASK_NAME = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)")


class _Extended(_private.MultiWorkerExtended):  # type: ignore[misc]
    """What the strategy does with replicas, values and datasets when each worker has one replica."""

    def __init__(self, strategy: tf.distribute.Strategy, resolver: Any, options: Any) -> None:
        super().__init__(strategy, cluster_resolver=resolver, communication_options=options)
        #: What carries tensors to the peers, where each worker has one replica.
        self.collectives: Collectives | None = None
        if self.one_replica and self._in_multi_worker_mode():
            self.collectives = TensorFlowCollectives(
                self._num_workers,
                self.worker_devices[0],
                options.implementation.name.lower(),
                options.bytes_per_pack,
            )
        #: How many all-reduces replicas have asked for: a model that communicates is told by it.
        self.replica_reductions = 0
        #: 0 in a step for which this worker has no examples, so that it adds nothing to a sum; else 1.
        self.present: tf.Tensor | None = None

    @property
    def one_replica(self) -> bool:
        return len(self.worker_devices) == 1

    # A replica on the calling thread.

    def _call_for_each_replica(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if not self.one_replica:
            return super()._call_for_each_replica(fn, args, kwargs)
        replica = tf.distribute.ReplicaContext(
            self._container_strategy(), replica_id_in_sync_group=self._get_replica_id_in_sync_group(0)
        )
        args, kwargs = tf.nest.map_structure(self._local, (args or (), kwargs or {}))
        # Without the device, gradients would be reduced one by one.
        with replica, tf.device(self.worker_devices[0]):
            return fn(*args, **kwargs)

    def _local(self, value: Any) -> Any:
        if isinstance(value, tf.distribute.DistributedValues) and not isinstance(value, tf.Variable):
            return self._container_strategy().experimental_local_results(value)[0]
        return value

    # Collectives go through the one interface.

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        if self.collectives is None:
            return super()._reduce_to(reduce_op, value, destinations, options)
        return self.collectives.all_reduce(reduce_op, [self._component(value)])[0]

    def _batch_reduce_to(self, reduce_op: Any, pairs: Any, options: Any) -> Any:
        if self.collectives is None:
            return super()._batch_reduce_to(reduce_op, pairs, options)
        return self._reduce_replicas(reduce_op, [self._component(value) for value, _ in pairs])

    def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        if self.collectives is None:
            return super()._replica_ctx_all_reduce(reduce_op, value, options)
        return tf.nest.pack_sequence_as(value, self._reduce_replicas(reduce_op, tf.nest.flatten(value)))

    def _reduce_replicas(self, reduce_op: Any, values: list[Any]) -> list[Any]:
        assert self.collectives is not None
        self.replica_reductions += 1
        if self.present is not None:
            values = [_scale(v, self.present) if v.dtype.is_floating else v for v in values]
        return self.collectives.all_reduce(reduce_op, values)

    def _gather_to_implementation(self, value: Any, destinations: Any, axis: int, options: Any) -> Any:
        if self.collectives is None:
            return super()._gather_to_implementation(value, destinations, axis, options)
        return self.collectives.all_gather(self._component(value), axis)

    def _component(self, value: Any) -> Any:
        """This worker's own value, also of a variable whose read would be a collective itself."""
        value = self._local_variable(value)
        return tf.convert_to_tensor(value) if isinstance(value, tf.Variable) else value

    def _local_variable(self, value: Any) -> Any:
        return value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value

    # Datasets: this worker's rows of every global batch.

    def _experimental_distribute_dataset(self, dataset: tf.data.Dataset, options: Any) -> Any:
        if self.one_replica and is_share(dataset):
            return dataset
        if not self.one_replica or leave_to_tensorflow(dataset, self._num_workers):
            return super()._experimental_distribute_dataset(dataset, options)
        return distribute_batches(dataset, self._num_workers, self._id_in_cluster)


class MultiWorkerMirroredStrategy(tf.distribute.MultiWorkerMirroredStrategy):  # type: ignore[misc]
    """Synchronous data-parallel training of Keras 3 models on one or many workers.

    Drop-in for ``tf.distribute.MultiWorkerMirroredStrategy``. Create it before anything else that uses
    TensorFlow, build and compile the model inside ``strategy.scope()``, and call ``fit``, ``evaluate``
    and ``predict`` on every worker with the same arguments and the same dataset (batched with the global
    batch size). Each worker then takes its rows of each batch, and the weights, the metrics and the
    predictions are those of one worker. With no TF_CONFIG it is a strategy for one worker.

    Args:
        communication: What carries the collectives: "auto", "ring" or "nccl".
        cluster_resolver: A ``tf.distribute.cluster_resolver.ClusterResolver`` that describes the
            cluster; by default TF_CONFIG does.
        bytes_per_pack: Gradients go out in pieces of about this many bytes.
        start_timeout: Seconds that the workers wait for each other at the start.
        heartbeat_timeout: Seconds without a sign of life after which a worker counts as gone.

    Raises:
        ArgumentError: An argument is not of the form above.
        ClusterConfigError: TF_CONFIG is not valid.
        ClusterStartError: TensorFlow is already in use, the port cannot be had, or peers are missing.

    Source: keras-team/keras#20585 (why the stock class cannot train Keras 3 models).

    Example:
        >>> strategy = tfdistr.MultiWorkerMirroredStrategy()
        >>> with strategy.scope():
        ...     model = keras.Sequential([keras.layers.Dense(1)])
        ...     model.compile("sgd", "mse")
        >>> history = model.fit(dataset, epochs=2)
    """

    def __init__(
        self,
        communication: str = "auto",
        cluster_resolver: Any = None,
        *,
        bytes_per_pack: int = BYTES_PER_PACK,
        start_timeout: float = 300.0,
        heartbeat_timeout: float = 30.0,
    ) -> None:
        one_of("communication", communication, COMMUNICATION)
        if cluster_resolver is None:
            config = cluster_from_env()
            # In the form that TensorFlow reads: it fails on some of what R writes, and on "".
            os.environ.update(config.to_env() if config else {"TF_CONFIG": "{}"})
            cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=bytes_per_pack,
            implementation=tf.distribute.experimental.CommunicationImplementation[communication.upper()],
        )
        _start_cluster_services(cluster_resolver, start_timeout, heartbeat_timeout)
        try:
            # Past the stock constructor, which would make the stock object that does the work.
            super(tf.distribute.MultiWorkerMirroredStrategy, self).__init__(
                _Extended(self, cluster_resolver, options)
            )
        except (tf.errors.OpError, RuntimeError) as error:
            raise _start_error(error, cluster_resolver, start_timeout) from error
        extended = self.extended
        if not extended.one_replica:
            log.warning(
                "This worker has %d devices, so TensorFlow's own replica threads are used: R functions in "
                "the model and Keras 3's fit on several workers fail there. Start one process per device.",
                len(extended.worker_devices),
            )
        self._seed_pipelines()
        if extended._in_multi_worker_mode():
            atexit.register(self.leave)

    @property
    def num_workers(self) -> int:
        """Number of workers that train, the chief included."""
        return int(self.extended._num_workers)

    @property
    def worker_index(self) -> int:
        """Index of this worker among those that train; the chief is 0."""
        return int(self.extended._id_in_cluster)

    @property
    def is_chief(self) -> bool:
        """Whether this worker is the one that writes checkpoints and logs."""
        return bool(self.extended._is_chief)

    def run(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """Run ``fn`` on this worker's replica; see ``tf.distribute.Strategy.run``.

        Within the steps of Keras's own ``fit`` and ``evaluate`` the gradients are averaged over the
        examples of the global batch. In your own step, scale the loss as TensorFlow teaches
        (``tf.nn.compute_average_loss``).
        """
        model = _private.keras_step_model(fn)
        if model is None or self.extended.collectives is None:
            return super().run(fn, args=args, kwargs=kwargs, options=options)
        data, *others = args
        data = tf.nest.map_structure(self.extended._local, data)
        examples = _count_examples(data)
        args = (_at_least_one(data, examples), *others)
        with self._exact_step(model, examples):
            return super().run(fn, args=args, kwargs=kwargs, options=options)

    @contextlib.contextmanager
    def _exact_step(self, model: keras.Model, examples: tf.Tensor) -> Iterator[None]:
        """One step of Keras on a local batch that may be shorter than the peers', or empty."""
        may_be_empty = tf.get_static_value(examples) is None
        state = model.metrics_variables if may_be_empty and model.built else []
        variables = [self.extended._local_variable(v.value) for v in state]
        before = [tf.identity(v.read_value()) for v in variables]
        mean = _MeanOverExamples(self, examples)
        self.extended.present = tf.sign(tf.cast(examples, tf.float32)) if may_be_empty else None
        try:
            with _private.optimizer_step(model, mean.scale_loss, mean.reduce):
                yield
        finally:
            self.extended.present = None
        if variables:
            # The row that stands in for none must not enter the metrics.
            def restore() -> tf.Tensor:
                for variable, value in zip(variables, before, strict=True):
                    variable.assign(value)
                return tf.constant(True)

            tf.cond(examples > 0, lambda: tf.constant(False), restore)

    def reduce(self, reduce_op: Any, value: Any, axis: int | None = None) -> Any:
        """Reduce ``value`` over the workers; see ``tf.distribute.Strategy.reduce``.

        Two uses by Keras's ``fit`` get what it means. A scalar with ``axis=0`` (the logs of a step) is
        the worker's own value. A nested batch with ``axis=None`` (to build a model from the shapes
        of a first batch) is the local batch. Other nested values are reduced one by one.
        """
        if self.extended.collectives is not None:
            local = tf.nest.map_structure(self.extended._local, value)
            if tf.nest.is_nested(value):
                parts = tf.nest.flatten(value)
                if axis is None and all(isinstance(part, tf.distribute.DistributedValues) for part in parts):
                    return local
                return tf.nest.pack_sequence_as(value, [self.reduce(reduce_op, part, axis) for part in parts])
            if axis is not None and getattr(local, "shape", None) == ():
                return local
        return super().reduce(reduce_op, value, axis)

    def barrier(self, name: str, timeout: float) -> None:
        """Wait until every worker is at the barrier ``name``; each name can be used once.

        Args:
            name: Any text, the same on all workers.
            timeout: Seconds to wait at most.

        Raises:
            ClusterStartError: Not every worker came within ``timeout`` seconds.
        """
        if self.num_workers == 1:
            return
        try:
            self.extended.collectives.barrier(name, timeout)
        except tf.errors.OpError as error:
            raise ClusterStartError(
                f"All {self.num_workers} workers must come to the barrier {name!r} within {timeout:g} s.",
                received=str(error.message).split("\n")[0],
                fix="Look at the log of the worker that is missing.",
            ) from error

    def report_failure(self, message: str) -> None:
        """Tell the peers that this worker failed, so that they stop with ``message`` instead of waiting."""
        if self.num_workers > 1:
            atexit.unregister(self.leave)
            with contextlib.suppress(tf.errors.OpError):
                _private.report_error(message)

    def leave(self) -> None:
        """Wait (at most a minute) for the peers to be done: TensorFlow aborts those whose peer is gone.

        Called by itself when the process exits. A process that ends with an error does not wait: it
        tells its peers.
        """
        atexit.unregister(self.leave)
        error = getattr(sys, "last_value", None)
        if error is not None and not hasattr(sys, "ps1"):
            self.report_failure(f"worker {self.worker_index} ended with {type(error).__name__}: {error}")
            return
        with contextlib.suppress(tf.errors.OpError, ClusterStartError):
            self.barrier("tfdistr/leave", EXIT_TIMEOUT)

    def _seed_pipelines(self) -> None:
        """Make an unseeded ``shuffle`` draw the same order on all workers, unless the user set a seed."""
        if self.num_workers == 1 or _private.global_seed() is not None:
            return
        if self.is_chief:
            _private.set_key("tfdistr/seed", str(int.from_bytes(os.urandom(4), "little") >> 1))
        tf.random.set_seed(int(_private.get_key("tfdistr/seed", 60.0)))


class _MeanOverExamples:
    """The gradient of the mean over the global batch, from each worker's mean over its own rows.

    Each worker's part weighs as its rows do. Where the model itself communicates on its way forward
    (synchronized BatchNormalization), the loss is weighted before the gradient is taken, for which the
    number of rows is all-reduced alone. Otherwise it travels with the gradients, at no cost.
    """

    def __init__(self, strategy: MultiWorkerMirroredStrategy, examples: tf.Tensor) -> None:
        self._extended = strategy.extended
        self._workers = strategy.num_workers
        self._count = tf.cast(examples, tf.float32)
        self._loss_is_weighted = False
        self._reductions_before = self._extended.replica_reductions

    def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
        if self._extended.replica_reductions == self._reductions_before:
            return loss
        self._loss_is_weighted = True
        (total,) = self._sum([self._count])
        return loss * tf.cast(self._workers * self._count / total, loss.dtype)

    def reduce(self, gradients: Sequence[Any]) -> list[Any]:
        if self._loss_is_weighted:
            return self._sum([_scale(g, tf.sign(self._count)) for g in gradients])
        *sums, total = self._sum([*(_scale(g, self._count) for g in gradients), self._count])
        return [_scale(g, self._workers / total) for g in sums]

    def _sum(self, tensors: Sequence[Any]) -> list[Any]:
        collectives: Collectives = self._extended.collectives
        return collectives.all_reduce(tf.distribute.ReduceOp.SUM, tensors)


def _scale(gradient: Any, factor: tf.Tensor) -> Any:
    """``gradient * factor``, and 0 where the factor is 0 even if the gradient is no number."""
    if isinstance(gradient, tf.IndexedSlices):
        values = _scale(gradient.values, factor)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return tf.math.multiply_no_nan(gradient, tf.cast(factor, gradient.dtype))


def _at_least_one(data: Any, examples: tf.Tensor) -> Any:
    """``data``, or one row of zeros where it has none: some kernels (convolutions) fail on no rows."""
    if tf.get_static_value(examples) is not None:
        return data

    def pad(value: Any) -> Any:
        if isinstance(value, tf.RaggedTensor):
            splits = value.row_splits
            padded = tf.cond(examples > 0, lambda: splits, lambda: tf.zeros([2], splits.dtype))
            return tf.RaggedTensor.from_row_splits(value.values, padded, validate=False)
        if isinstance(value, tf.SparseTensor):
            rows = tf.maximum(value.dense_shape[:1], 1)
            return tf.SparseTensor(value.indices, value.values, tf.concat([rows, value.dense_shape[1:]], 0))
        if not isinstance(value, tf.Tensor):
            return value
        row = tf.concat([[1], tf.shape(value)[1:]], 0)
        padded = tf.cond(examples > 0, lambda: value, lambda: tf.zeros(row, value.dtype))
        return tf.ensure_shape(padded, value.shape)

    return tf.nest.map_structure(pad, data)


def _count_examples(data: Any) -> tf.Tensor:
    first = next(part for part in tf.nest.flatten(data) if part is not None)
    if isinstance(first, tf.RaggedTensor):
        return tf.cast(first.nrows(), tf.int32)
    if isinstance(first, tf.SparseTensor):
        return tf.cast(first.dense_shape[0], tf.int32)
    return tf.shape(first)[0]


def _start_cluster_services(resolver: Any, start_timeout: float, heartbeat_timeout: float) -> None:
    jobs = {job: len(tasks) for job, tasks in resolver.cluster_spec().as_dict().items()}
    training = {job: jobs[job] for job in ("chief", "worker") if job in jobs}
    if not training or resolver.task_type not in training:
        return
    if _private.context_initialized():
        raise ClusterStartError(
            "MultiWorkerMirroredStrategy must be made before anything else uses TensorFlow in this process.",
            received="TensorFlow has already set up its devices (a tensor, a model or a dataset was made)",
            fix="Make the strategy first: right after the imports, before data and models.",
        )
    _bypass_proxy(address for job in training for address in resolver.cluster_spec().job_tasks(job))
    _private.configure_coordination(
        training,
        leader=f"/job:{_leader_job(training)}/replica:0/task:0",
        register_timeout=start_timeout,
        heartbeat_timeout=heartbeat_timeout,
    )


def _bypass_proxy(addresses: Iterable[str]) -> None:
    """Have gRPC connect to the workers themselves: with http_proxy set it asks the proxy, and hangs there."""
    names = ("no_grpc_proxy", "no_proxy")
    known = next((os.environ[name] for name in names if os.environ.get(name)), "").split(",")
    hosts = (split_address(address)[0] for address in addresses)
    os.environ[names[0]] = ",".join(dict.fromkeys(filter(None, [*known, *hosts])))


def _start_error(error: Exception, resolver: Any, timeout: float) -> ClusterStartError:
    """What TensorFlow's error at the start means: a port that is taken, or peers that did not come."""
    text = str(getattr(error, "message", error)).strip()
    spec = resolver.cluster_spec()

    def name(job: str, index: Any) -> str:
        return f"{job} {index} ({spec.task_address(job, int(index))})"

    this = name(resolver.task_type, resolver.task_id)
    if "in use" in text or "Could not start gRPC server" in text:
        return ClusterStartError(
            "Each worker must be able to listen on the port of its address.",
            received=f"{this}: {text.splitlines()[0]}",
            fix="Another process has this worker's port: end it, or give the worker another address.",
        )
    # TensorFlow names those that are missing where it knows them: on the leader, or if the leader is there.
    named = _MISSING_TASKS.search(text)
    missing = [name(*task) for task in _TASK_NAME.findall(named[1])] if named else []
    leader = name(_leader_job(spec.jobs), 0)
    if not missing and this != leader and isinstance(error, tf.errors.OpError):
        missing = [leader]
    why = f"waited for {', '.join(missing)}" if missing else text.partition("\n")[0]
    return ClusterStartError(
        f"The workers of the cluster must find each other within {timeout:g} s.",
        received=f"{this}: {why}",
        fix="Start every worker of the cluster, with the same TF_CONFIG cluster and its own task, where the "
        "others can reach its address.",
    )


def _leader_job(jobs: Iterable[str]) -> str:
    return "chief" if "chief" in jobs else "worker"

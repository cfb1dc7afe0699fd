"""The only module that touches private names of TensorFlow and Keras.

Tested with TensorFlow 2.21 and Keras 3.15. Each function says which private name it needs and why
no public one will do; when a version breaks one, this is the file to mend.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from tensorflow.core.protobuf import error_codes_pb2 as _error_codes
from tensorflow.python.data.ops import dataset_ops as _dataset_ops
from tensorflow.python.data.ops import readers as _readers
from tensorflow.python.data.ops import shuffle_op as _shuffle_op
from tensorflow.python.distribute import collective_all_reduce_strategy as _multi_worker
from tensorflow.python.eager import context as _context

# --- The strategy: TensorFlow exports it, but not the "extended" object that does its work --------


class MultiWorkerExtended(_multi_worker.CollectiveAllReduceExtended):  # type: ignore[misc]
    """TensorFlow's object behind ``MultiWorkerMirroredStrategy``, its hooks under names of our own.

    ``on_replicas``, ``on_reduce``, ``on_batch_reduce``, ``on_replica_reduce``, ``on_gather`` and
    ``on_dataset`` do what the stock strategy does; a subclass overrides them.
    """

    @property
    def num_workers(self) -> int:
        """Number of workers that train."""
        return int(self._num_workers)

    @property
    def worker_index(self) -> int:
        """Index of this worker among them."""
        return int(self._id_in_cluster)

    @property
    def is_chief(self) -> bool:
        """Whether this worker is the chief."""
        return bool(self._is_chief)

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The strategy that this object belongs to."""
        return self._container_strategy()

    def replica_context(self) -> tf.distribute.ReplicaContext:
        """The context of this worker's first replica."""
        return tf.distribute.ReplicaContext(
            self.strategy, replica_id_in_sync_group=self._get_replica_id_in_sync_group(0)
        )

    def on_replicas(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run a function on every local replica."""
        return super()._call_for_each_replica(fn, args, kwargs)

    def on_reduce(self, op: Any, value: Any, destinations: Any, options: Any) -> Any:
        """Reduce a value, outside of a replica."""
        return super()._reduce_to(op, value, destinations, options)

    def on_batch_reduce(self, op: Any, pairs: Any, options: Any) -> Any:
        """Reduce values that replicas gave, with the destination of each."""
        return super()._batch_reduce_to(op, pairs, options)

    def on_replica_reduce(self, op: Any, value: Any, options: Any) -> Any:
        """Reduce a nested value, inside a replica."""
        return super()._replica_ctx_all_reduce(op, value, options)

    def on_gather(self, value: Any, destinations: Any, axis: int, options: Any) -> Any:
        """Concatenate the values of all replicas."""
        return super()._gather_to_implementation(value, destinations, axis, options)

    def on_dataset(self, dataset: tf.data.Dataset, options: Any) -> Any:
        """Split a dataset over the workers."""
        return super()._experimental_distribute_dataset(dataset, options)

    def _call_for_each_replica(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return self.on_replicas(fn, args, kwargs)

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        return self.on_reduce(reduce_op, value, destinations, options)

    def _batch_reduce_to(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
        return self.on_batch_reduce(reduce_op, value_destination_pairs, options)

    def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        return self.on_replica_reduce(reduce_op, value, options)

    def _gather_to_implementation(self, value: Any, destinations: Any, axis: int, options: Any) -> Any:
        return self.on_gather(value, destinations, axis, options)

    def _experimental_distribute_dataset(self, dataset: tf.data.Dataset, options: Any) -> Any:
        return self.on_dataset(dataset, options)


# --- The runtime context: coordination service and its barriers -------------------------------


def configure_coordination(
    jobs: dict[str, int], *, leader: str, register_timeout: float, heartbeat_timeout: float
) -> None:
    """Set up the coordination service so that a missing peer is named, not waited for for ever.

    The strategy configures the service only when nobody did, with a limit of one hour and without
    the barrier that names missing tasks; there is no public way to pass other values.

    Args:
        jobs: Number of tasks of each training job.
        leader: The task that hosts the service, such as ``/job:worker/replica:0/task:0``.
        register_timeout: Seconds within which every task must have registered.
        heartbeat_timeout: Seconds without a heartbeat after which a task counts as gone.
    """
    from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2

    context = _context.context()
    context.configure_coordination_service(
        service_type="standalone",
        service_leader=leader,
        cluster_register_timeout_in_ms=int(register_timeout * 1000),
        heartbeat_timeout_in_ms=int(heartbeat_timeout * 1000),
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(name=job, num_tasks=tasks) for job, tasks in jobs.items()
        ],
    )
    context.coordination_service.cluster_register_with_barrier = True


def context_initialized() -> bool:
    """Whether TensorFlow has started its devices, after which no server can be configured."""
    return _context.context()._context_handle is not None


def wait_at_barrier(name: str, timeout: float) -> None:
    """Wait until every task of the cluster is at the barrier ``name`` (each name is used once)."""
    _context.context().wait_at_barrier(name, int(timeout * 1000))


def report_error(message: str) -> None:
    """Make every peer's next collective fail with ``message``, also while this process lives on."""
    _context.context().report_error_to_cluster(_error_codes.ABORTED, message)


def set_key(key: str, value: str) -> None:
    """Store a value in the coordination service, for every task to read."""
    _context.context().set_config_key_value(key, value)


def get_key(key: str, timeout: float) -> str:
    """Read a value from the coordination service, waiting up to ``timeout`` seconds for it."""
    return str(_context.context().get_config_key_value(key, int(timeout * 1000)))


# --- tf.data: what a pipeline is made of --------------------------------------------------------

_READER_OPS = frozenset({"TFRecordDataset", "TFRecordDatasetV2", "TextLineDataset", "ReadFile", "CSVDataset",
    "CSVDatasetV2", "FixedLengthRecordDataset", "FixedLengthRecordDatasetV2"})  # fmt: skip
_READER_CLASSES = (
    _readers.TFRecordDatasetV2,
    _readers.TextLineDatasetV2,
    _readers.FixedLengthRecordDatasetV2,
)


def walk_pipeline(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """Every dataset of the pipeline, from its end to its sources (``Dataset._inputs`` is private)."""
    yield dataset
    for source in dataset._inputs():
        yield from walk_pipeline(source)


def source_files(dataset: tf.data.Dataset) -> int:
    """Number of files that the pipeline reads; 0 when it reads none.

    A reader made from a list of names knows them (``_filenames``). A reader inside ``interleave``
    or ``flat_map`` reads what the list of strings at the source names.
    """
    files = 0
    names = 0
    reads_in_function = False
    for node in walk_pipeline(dataset):
        if isinstance(node, _READER_CLASSES):
            known = node._filenames
            if isinstance(known, tf.data.Dataset):
                files += max(int(known.cardinality()), 0)
            else:
                files += int(tf.size(known))
        elif isinstance(node, _dataset_ops.DatasetSource):
            names += _file_names(node)
        function = getattr(node, "_map_func", None)
        if function is not None:
            reads_in_function = reads_in_function or _reads_files(function.function.graph.as_graph_def())
    return files + (names if reads_in_function else 0)


def _file_names(source: tf.data.Dataset) -> int:
    tensors = getattr(source, "_tensors", None) or []
    strings = [t for t in tensors if t.dtype == tf.string and t.shape.rank == 1]
    return int(strings[0].shape[0] or 0) if strings else 0


def _reads_files(graph: Any) -> bool:
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    return any(node.op in _READER_OPS for node in nodes)


def has_unseeded_shuffle(dataset: tf.data.Dataset) -> bool:
    """Whether the pipeline shuffles in an order that no seed fixes, so that every process draws its own."""
    for node in walk_pipeline(dataset):
        if isinstance(node, _shuffle_op._ShuffleDataset):
            seeds = tf.get_static_value(node._seed), tf.get_static_value(node._seed2)
            if seeds == (0, 0):
                return True
    return False


def global_seed() -> int | None:
    """The seed given to ``tf.random.set_seed``; TensorFlow offers no public reader."""
    seed = _context.global_seed()
    return None if seed is None else int(seed)


# --- Keras: where gradients of the workers meet -------------------------------------------------


def keras_step_model(fn: Callable[..., Any]) -> keras.Model | None:
    """The model, if ``fn`` is the ``train_step`` or ``test_step`` that Keras passes to ``strategy.run``."""
    if getattr(fn, "__name__", None) not in ("train_step", "test_step"):
        return None  # a method of the user's own, who scales the loss
    owner = getattr(fn, "__self__", None)
    return owner if isinstance(owner, keras.Model) else None


@contextlib.contextmanager
def optimizer_step(
    model: keras.Model,
    scale: Callable[[tf.Tensor], tf.Tensor],
    reduce: Callable[[Sequence[Any]], Sequence[Any]],
) -> Iterator[None]:
    """Within the context, ``scale`` is applied to the loss and ``reduce`` to the gradients, first of all.

    Keras checks for overflow, accumulates and clips each worker's own gradients and sums what is left
    of them (``_all_reduce_sum_gradients``). One worker does all that to the gradient of the whole
    batch, so here the sum comes first. The methods are overridden on this one optimizer object.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        yield
        return
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # inside a LossScaleOptimizer
    apply, scale_loss = optimizer.apply, optimizer.scale_loss

    def reduce_then_apply(grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        present = [g for g in grads if g is not None]
        reduced = iter(reduce(present) if present else ())
        return apply([None if g is None else next(reduced) for g in grads], trainable_variables)

    optimizer.apply = reduce_then_apply
    optimizer.scale_loss = lambda loss: scale_loss(scale(loss))
    inner._all_reduce_sum_gradients = lambda grads_and_vars: grads_and_vars
    try:
        yield
    finally:
        del optimizer.apply, optimizer.scale_loss
        del inner._all_reduce_sum_gradients

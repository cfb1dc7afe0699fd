"""The only module that touches private names of TensorFlow and Keras.

Tested with TensorFlow 2.21 and Keras 3.15. Each function says which private name it needs and why
no public one will do; when a version breaks one, this is the file to mend.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from keras.src.losses import loss as _losses
from keras.src.utils.python_utils import pythonify_logs as _pythonify_logs
from tensorflow.core.protobuf import error_codes_pb2 as _error_codes
from tensorflow.python.data.ops import dataset_ops as _dataset_ops
from tensorflow.python.data.ops import readers as _readers
from tensorflow.python.data.ops import shuffle_op as _shuffle_op
from tensorflow.python.data.util import structure as _structure
from tensorflow.python.distribute import collective_all_reduce_strategy as _multi_worker
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import op_def_registry as _op_defs

from tfdistr.errors import TfdistrError

# AutoGraph replaces an error by one of its own class, unless the error's class says not to.
TfdistrError.ag_pass_through = True  # type: ignore[attr-defined]

# --- The strategy: TensorFlow exports it, but not the "extended" object that does its work --------


class MultiWorkerExtended(_multi_worker.CollectiveAllReduceExtended):  # type: ignore[misc]
    """TensorFlow's object behind ``MultiWorkerMirroredStrategy``, its hooks under names of our own.

    ``on_replicas``, ``on_reduce``, ``on_batch_reduce``, ``on_replica_reduce``, ``on_gather`` and
    ``on_dataset`` do what the stock strategy does; a subclass overrides them.
    """

    def join(self, num_workers: int, index: int) -> None:
        """Make this object, made for one worker, that of one among several unknown to TensorFlow."""
        self._num_workers, self._id_in_cluster, self._is_chief = num_workers, index, index == 0

    #: Whether ``on_initial_value`` gives every worker the chief's value.
    shares_initial_values = False

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

    #: While a replica runs code that was written for one: what it is told about their number.
    replicas_to_tell: int | None = None

    @property
    def _num_replicas_in_sync(self) -> int:
        told = self.replicas_to_tell
        return int(super()._num_replicas_in_sync) if told is None else told

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

    def on_initial_value(self, value: tf.Tensor, name: str | None) -> tf.Tensor:
        """The value that a variable starts with on this worker, before the chief's takes its place."""
        return value

    def _call_for_each_replica(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return self.on_replicas(fn, args, kwargs)

    def _get_variable_creator_initial_value(
        self, replica_id: int, device: Any, primary_var: Any, **kwargs: Any
    ) -> Any:
        given = kwargs["initial_value"]

        def checked() -> Any:
            value = given() if callable(given) else given
            if not hasattr(value, "wrapped_value"):  # that of a checkpoint
                value = self.on_initial_value(
                    tf.convert_to_tensor(value, dtype=kwargs.get("dtype")), kwargs.get("name")
                )
            return value

        if self.shares_initial_values:
            return checked
        kwargs["initial_value"] = checked
        return super()._get_variable_creator_initial_value(
            replica_id=replica_id, device=device, primary_var=primary_var, **kwargs
        )

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


def failed_tasks(jobs: dict[str, int]) -> list[str]:
    """What the coordination service says of the tasks that failed or vanished; empty if all are well."""
    states = _context.context().get_task_states(list(jobs.items()))
    return [str(getattr(state, "message", state)) for state in states if state is not None]


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


def reshuffles(dataset: tf.data.Dataset) -> bool:
    """Whether the pipeline has a shuffle of its own, whose order depends on how often it was read."""
    nodes = walk_pipeline(dataset)
    return any(isinstance(n, _shuffle_op._ShuffleDataset) and n._reshuffle_each_iteration for n in nodes)


def node_name(dataset: tf.data.Dataset) -> str:
    """What the last node of a pipeline does, such as "Map" or "Take" (the classes are private)."""
    return type(dataset).__name__.removeprefix("_").removesuffix("Dataset")


def node_inputs(dataset: tf.data.Dataset) -> Any:
    """The datasets that the last node reads; those of a zip in the structure of its elements."""
    return getattr(dataset, "_datasets", None) or dataset._inputs()


def nodes_after(dataset: tf.data.Dataset, sources: Sequence[tf.data.Dataset]) -> set[str]:
    """Names of the nodes of a pipeline that come after ``sources``."""
    if any(dataset is source for source in sources):
        return set()
    return {node_name(dataset)}.union(*(nodes_after(node, sources) for node in dataset._inputs()))


def dense_slices(dataset: tf.data.Dataset) -> Any:
    """The tensors of ``from_tensor_slices``, if none is sparse or ragged; else None."""
    dense = all(isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(dataset.element_spec))
    if node_name(dataset) != "TensorSlice" or not dense:
        return None
    return tf.nest.pack_sequence_as(dataset.element_spec, dataset._tensors)


# Ops that count as stateful, but whose result does not depend on what ran before.
_HARMLESS_OPS = frozenset({"Assert", "Case", "If", "LookupTableFindV2", "ReadVariableOp",
    "StatefulPartitionedCall", "While"})  # fmt: skip


def map_function(dataset: tf.data.Dataset) -> Callable[[Any], Any] | None:
    """The function of a ``map``, from element to element; None if it keeps a state or is not known.

    Random ops, variables that are changed and Python functions depend on the order of the calls.
    """
    wrapper = getattr(dataset, "_map_func", None)
    if wrapper is None:
        return None
    graph = wrapper.function.graph.as_graph_def()
    functions = {function.signature.name for function in graph.library.function}
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    for op in {node.op for node in nodes} - _HARMLESS_OPS - functions:
        known = _op_defs.get(op)
        if known is None or known.is_stateful:
            return None
    (source,) = dataset._inputs()

    def apply(element: Any) -> Any:
        parts = wrapper.function(*_structure.to_tensor_list(source.element_spec, element))
        return _structure.from_compatible_tensor_list(wrapper.output_structure, parts)

    return apply


# --- Keras: the calls of fit, evaluate and predict ------------------------------------------------

_CALLS = {
    inspect.unwrap(getattr(keras.Model, name)).__code__: name for name in ("fit", "evaluate", "predict")
}


@dataclass(frozen=True)
class KerasCall:
    """A call of ``fit``, ``evaluate`` or ``predict`` that is under way.

    Attributes:
        method: Which of them.
        model: The model.
        variables: The local variables of the method: its arguments, and what it made so far.
    """

    method: str
    model: keras.Model
    variables: Mapping[str, Any]

    @property
    def steps(self) -> int | None:
        """Number of batches of an epoch, as far as Keras knows it."""
        steps = self.variables["epoch_iterator"].num_batches
        return None if steps is None else int(steps)

    @property
    def callbacks(self) -> keras.callbacks.CallbackList:
        """The callbacks, once Keras has put them into its list."""
        return self.variables["callbacks"]


def keras_call() -> KerasCall | None:
    """The innermost call of Keras's fit, evaluate or predict on this thread's stack.

    Keras tells a strategy neither the model nor the callbacks that it is about to use.
    """
    frame = inspect.currentframe()
    while frame is not None:
        method = _CALLS.get(frame.f_code)
        if method is not None:
            return KerasCall(method, frame.f_locals["self"], frame.f_locals)
        frame = frame.f_back
    return None


_BUILD = inspect.unwrap(keras.Model._maybe_symbolic_build).__code__


def keras_builds_model() -> bool:
    """Whether this is called while Keras looks at the shapes of a first batch, to build the model from."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code is _BUILD:
            return True
        frame = frame.f_back
    return False


def build(model: keras.Model, batch: Any) -> None:
    """Make the variables of a model, its metrics and its optimizer from the shapes of a batch."""
    model._symbolic_build(data_batch=batch)


_LOOP = ("fit", "evaluate", "make_train_function", "make_test_function")


def changes_keras_loop(model: keras.Model) -> bool:
    """Whether the author of a model has put something else in the place of Keras's training loop."""
    return any(
        name in vars(model) or getattr(type(model), name) is not getattr(keras.Model, name) for name in _LOOP
    )


def initial_epoch(model: keras.Model) -> int:
    """The epoch with which ``fit`` begins: that which ``BackupAndRestore`` has restored, if it has."""
    return int(model._initial_epoch or 0)


def metrics_or_logs(model: keras.Model, logs: Any) -> dict[str, Any]:
    """What ``fit`` logs for an epoch: the metrics, or the last outputs of a step that has others."""
    return dict(_pythonify_logs(model._get_metrics_result_or_logs(logs)))


def call_on_this_thread(callbacks: keras.callbacks.CallbackList) -> None:
    """Have ``callbacks`` called on the thread of the training loop, as those must be that communicate."""
    callbacks._async_train = False


def all_layers(model: keras.Model) -> list[keras.Layer]:
    """The model's layers, those inside of layers included (``Model.layers`` has the outer ones)."""
    return list(model._flatten_layers(include_self=False))


def seed_generators(model: keras.Model) -> list[keras.random.SeedGenerator]:
    """The generators of random numbers in the model's layers."""
    found = [
        generator for layer in model._flatten_layers() for generator in getattr(layer, "_seed_generators", ())
    ]
    return list({id(generator): generator for generator in found}.values())


# --- Keras: where the losses and gradients of the workers meet ------------------------------------


def keras_step(fn: Callable[..., Any]) -> tuple[keras.Model, Callable[..., Any]] | None:
    """The model and its step, if ``fn`` is the ``train_step`` or ``test_step`` that Keras passes to ``run``.

    A step that its author decorated with ``tf.function`` is compiled anew: its graph, once made, would
    not see what is arranged around the step.
    """
    if getattr(fn, "__name__", None) not in ("train_step", "test_step"):
        return None
    if not isinstance(fn, tf.types.experimental.PolymorphicFunction):
        owner = getattr(fn, "__self__", None)
        return (owner, fn) if isinstance(owner, keras.Model) else None
    bound = getattr(fn.python_function, "__wrapped__", None)
    owner = getattr(getattr(bound, "__self__", None), "target", None)
    if not isinstance(owner, keras.Model):
        return None
    plain = types.MethodType(inspect.getattr_static(owner, fn.__name__).python_function, owner)
    return owner, plain if tf.executing_eagerly() else tf.function(plain)


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

    with (
        overridden(optimizer, "apply", reduce_then_apply),
        overridden(optimizer, "scale_loss", lambda loss: scale_loss(scale(loss))),
        overridden(inner, "_all_reduce_sum_gradients", lambda grads_and_vars: grads_and_vars),
    ):
        yield


@contextlib.contextmanager
def loss_shares(
    model: keras.Model,
    share: Callable[[tf.Tensor | None], tf.Tensor],
    weight: Callable[[], tf.Tensor],
) -> Iterator[None]:
    """Within the context, losses that are not the mean over all rows are multiplied by ``share``.

    ``share`` gets what Keras divides the sum of this worker's losses by: the number of entries that no
    mask hides, or the sum of the weights; None if it does not divide. Each loss of a model with several
    outputs has a metric, which counts every batch once, whatever its size; it counts this worker's part of it
    as ``weight()``. (``Model._compile_loss`` and its list of losses have no public names.)
    """
    compiled: Any = getattr(model, "_compile_loss", None)
    entries = getattr(compiled, "_flat_losses", None)
    if not entries:
        yield
        return

    def weighted(metric: keras.metrics.Metric) -> Callable[..., Any]:
        update = metric.update_state
        return lambda values, sample_weight=None: update(
            values, sample_weight=weight() if sample_weight is None else sample_weight
        )

    with contextlib.ExitStack() as stack:
        shared = [entry._replace(loss=_SharedLoss(entry.loss, share)) for entry in entries]
        stack.enter_context(overridden(compiled, "_flat_losses", shared))
        for metric in compiled.metrics:
            stack.enter_context(overridden(metric, "update_state", weighted(metric)))
        yield


class _SharedLoss:
    """A loss of a model that is multiplied by this worker's share, where it has one."""

    def __init__(self, loss: keras.losses.Loss, share: Callable[[tf.Tensor | None], tf.Tensor]) -> None:
        self._loss = loss
        self._share = share

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        made: list[tf.Tensor] = []
        call = self._loss.call

        def observed(*args: Any, **kwargs: Any) -> Any:
            made.append(call(*args, **kwargs))
            return made[-1]

        with overridden(self._loss, "call", observed):
            value = self._loss(y_true, y_pred, sample_weight)
        reduction = self._loss.reduction
        if reduction in (None, "none") or made[0].shape.rank == 0:  # a mean that its author has made
            return value
        if reduction == "sum":
            return value * tf.cast(self._share(None), value.dtype)
        hidden = [getattr(tensor, "_keras_mask", None) for tensor in (y_pred, made[0])]
        masks = [tf.cast(mask, tf.float32) for mask in hidden if mask is not None]
        mask = tf.math.reduce_prod(tf.stack(masks), axis=0) if masks else None
        if reduction == "mean_with_sample_weight":
            weights = _losses.apply_mask(sample_weight, mask, "float32", reduction)
        else:
            weights = mask
        if weights is None:
            return value
        divisor = tf.reduce_sum(tf.cast(weights, tf.float32))
        return value * tf.cast(self._share(divisor), value.dtype)


@contextlib.contextmanager
def overridden(obj: Any, name: str, value: Any) -> Iterator[None]:
    """Within the context, this one object has another attribute ``name``."""
    own = vars(obj)
    before = own.get(name, own)  # the dictionary itself stands for none
    setattr(obj, name, value)
    try:
        yield
    finally:
        if before is own:
            delattr(obj, name)
        else:
            setattr(obj, name, before)

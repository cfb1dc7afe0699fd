"""The parts of a ``tf.data`` pipeline, and the records of TFRecord files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops as _dataset_ops
from tensorflow.python.data.ops import options as _options
from tensorflow.python.data.ops import readers as _readers
from tensorflow.python.data.ops import shuffle_op as _shuffle_op
from tensorflow.python.data.util import structure as _structure
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import op_def_registry as _op_defs
from tensorflow.python.lib.io import _pywrap_record_io

_READER_OPS = frozenset({"TFRecordDataset", "TFRecordDatasetV2", "TextLineDataset", "ReadFile", "CSVDataset",
    "CSVDatasetV2", "FixedLengthRecordDataset", "FixedLengthRecordDatasetV2"})  # fmt: skip
_READER_CLASSES = (
    _readers.TFRecordDatasetV2,
    _readers.TextLineDatasetV2,
    _readers.FixedLengthRecordDatasetV2,
)


def walk_pipeline(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """Yield every dataset of the pipeline, from its end to its sources (``Dataset._inputs`` is private)."""
    yield dataset
    for source in dataset._inputs():
        yield from walk_pipeline(source)


def graph_of(dataset: tf.data.Dataset) -> Any:
    """Return the graph of a pipeline, also if it uses a state (``Dataset._as_serialized_graph``)."""
    ignore = _options.ExternalStatePolicy.IGNORE
    return tf.compat.v1.GraphDef.FromString(
        dataset._as_serialized_graph(external_state_policy=ignore).numpy()
    )


def node_lists(graph: Any) -> list[Any]:
    """Return the nodes of a graph, and of each of its functions, in an order that all processes share."""
    return [graph.node, *(function.node_def for function in graph.library.function)]


def operations_in(graph: Any) -> set[str]:
    """Return the types of the operations of a graph and of its functions."""
    return {node.op for nodes in node_lists(graph) for node in nodes}


def source_files(dataset: tf.data.Dataset) -> int:
    """Count the files that the pipeline reads; 0 if it reads none.

    A reader with a list of names knows them (``_filenames``). A reader inside ``interleave`` or ``flat_map``
    reads the files whose names are in the list of strings at the source.
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
            reads_in_function = reads_in_function or bool(
                _READER_OPS & operations_in(function.function.graph.as_graph_def())
            )
    return files + (names if reads_in_function else 0)


def _file_names(source: tf.data.Dataset) -> int:
    tensors = getattr(source, "_tensors", None) or []
    strings = [t for t in tensors if t.dtype == tf.string and t.shape.rank == 1]
    return int(strings[0].shape[0] or 0) if strings else 0


def global_seed() -> int | None:
    """Return the seed that ``tf.random.set_seed`` has set. TensorFlow has no public function to read it."""
    seed = _context.global_seed()
    return None if seed is None else int(seed)


_STATEFUL = re.compile(r"(\w+) is stateful")
_BATCHES = frozenset({"Batch", "ParallelBatch", "PaddedBatch", "DenseToRaggedBatch", "DenseToSparseBatch"})
_ELEMENTS = frozenset({"Unbatch", "FlatMap", "Interleave", "ParallelInterleave"})


def makes_batches(dataset: tf.data.Dataset) -> bool:
    """Return whether the elements of a pipeline are batches: whether its last such node makes them."""
    for node in walk_pipeline(dataset):
        if node_name(node) in _BATCHES:
            return True
        if node_name(node) in _ELEMENTS:
            break
    specs = tf.nest.flatten(dataset.element_spec)
    shapes = [getattr(spec, "shape", tf.TensorShape(None)) for spec in specs]
    return all(shape.rank and shape[0] is None for shape in shapes)


_PYTHON_OPS = {
    "EagerPyFunc": "py_function", "GeneratorDataset": "from_generator", "PyFunc": "numpy_function",
    "PyFuncStateless": "numpy_function",
}  # fmt: skip


def python_ops(dataset: tf.data.Dataset) -> list[str]:
    """Return the TensorFlow functions that call Python code in a pipeline."""
    found = {_PYTHON_OPS[op] for op in operations_in(graph_of(dataset)) & _PYTHON_OPS.keys()}
    # A generator is made of calls of numpy_function().
    return ["from_generator"] if "from_generator" in found else sorted(found)


class StatefulPipeline(Exception):
    """A pipeline uses a state of this process, by the operation ``op``."""

    def __init__(self, op: str) -> None:
        super().__init__(op)
        self.op = op


def serialized_dataset(dataset: tf.data.Dataset) -> tuple[bytes, object]:
    """Return a pipeline as a graph, and the types of its elements (as the service of tf.data sends it)."""
    try:
        graph = dataset._as_serialized_graph(external_state_policy=_options.ExternalStatePolicy.FAIL)
    except tf.errors.FailedPreconditionError as error:
        found = _STATEFUL.search(error.message)
        raise StatefulPipeline(found[1] if found else str(error.message)) from error
    return graph.numpy(), dataset.element_spec


def deserialized_dataset(graph: bytes, spec: object) -> tf.data.Dataset:
    """Return the pipeline of a graph."""
    return _dataset_ops._VariantDataset(tf.raw_ops.DatasetFromGraph(graph_def=graph), spec)


def waits_for_shards(dataset: tf.data.Dataset) -> bool:
    """Return whether TensorFlow is to fill the arguments of a ``shard(SHARD_HINT, SHARD_HINT)``."""
    counts = [getattr(node, "_num_shards", None) for node in walk_pipeline(dataset)]
    return tf.data.experimental.SHARD_HINT in map(tf.get_static_value, counts)


def reshuffles(dataset: tf.data.Dataset) -> bool:
    """Return whether the pipeline has a shuffle whose order depends on how often the pipeline was read."""
    nodes = walk_pipeline(dataset)
    return any(isinstance(n, _shuffle_op._ShuffleDataset) and n._reshuffle_each_iteration for n in nodes)


def node_name(dataset: tf.data.Dataset) -> str:
    """Return the name of a pipeline's last node, such as "Map" or "Take" (the classes are private)."""
    return type(dataset).__name__.removeprefix("_").removesuffix("Dataset")


def node_inputs(dataset: tf.data.Dataset) -> Sequence[tf.data.Dataset]:
    """Return the datasets that the last node reads. For a zip, they have the structure of its elements."""
    inputs: Sequence[tf.data.Dataset] = getattr(dataset, "_datasets", None) or dataset._inputs()
    return inputs


def nodes_after(dataset: tf.data.Dataset, sources: Sequence[tf.data.Dataset]) -> set[str]:
    """Return the names of the nodes of a pipeline that come after ``sources``."""
    if any(dataset is source for source in sources):
        return set()
    return {node_name(dataset)}.union(*(nodes_after(node, sources) for node in dataset._inputs()))


def dense_slices(dataset: tf.data.Dataset) -> object:
    """Return the tensors of ``from_tensor_slices``; None if one is sparse or ragged, or for other nodes."""
    dense = all(isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(dataset.element_spec))
    if node_name(dataset) != "TensorSlice" or not dense:
        return None
    return tf.nest.pack_sequence_as(dataset.element_spec, dataset._tensors)


# Ops that count as stateful, but whose result does not depend on what ran before.
_HARMLESS_OPS = frozenset({"Assert", "Case", "If", "LookupTableFindV2", "ReadVariableOp",
    "StatefulPartitionedCall", "While"})  # fmt: skip


def map_function(dataset: tf.data.Dataset) -> Callable[[Any], object] | None:
    """Return the function of a ``map``, from element to element; None if it has a state or is not known.

    Random ops, changes of variables and Python functions depend on the order of the calls.
    """
    wrapper = getattr(dataset, "_map_func", None)
    if wrapper is None:
        return None
    graph = wrapper.function.graph.as_graph_def()
    functions = {function.signature.name for function in graph.library.function}
    for op in operations_in(graph) - _HARMLESS_OPS - functions:
        known = _op_defs.get(op)
        if known is None or known.is_stateful:
            return None
    (source,) = dataset._inputs()

    def apply(element: object) -> Any:
        parts = wrapper.function(*_structure.to_tensor_list(source.element_spec, element))
        return _structure.from_compatible_tensor_list(wrapper.output_structure, parts)

    return apply


def record_iterator(path: str) -> Iterator[bytes]:
    """Read the records of a small TFRecord file, and check both checksums of each.

    ``RecordIterator`` is private. The public ``tf.data.TFRecordDataset`` takes 40 ms to start. No public
    function computes the checksums.
    """
    records: Iterator[bytes] = _pywrap_record_io.RecordIterator(path, "")
    return records

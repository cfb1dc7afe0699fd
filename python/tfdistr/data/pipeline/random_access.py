"""Examples of a ``tf.data`` pipeline by index, so that a worker reads only its own examples.

``tf.data.experimental.at`` does this for a whole pipeline. But if the pipeline has a ``map``, one iterator
after another crashes (TensorFlow 2.21), and a ``shuffle`` has another order than when it is read. So the
functions here look at the nodes of the pipeline, from the sources on. If each node has one example for each
index, the examples are looked up. Any other pipeline is read in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from tfdistr import tf_internals

Example = Callable[[tf.Tensor], Any]


class Specs(NamedTuple):
    """The types of an example and of a batch of examples, as ``Dataset.element_spec`` gives them."""

    example: Any
    batch: Any


# Nodes without functions, for which ``at`` gives the same examples as reading in order.
_PLAIN = frozenset({"TensorSlice", "Tensor", "Range", "Take", "Skip", "Shard", "Concatenate", "Zip",
                    "Prefetch", "Options"})  # fmt: skip


@dataclass(frozen=True)
class Lookup:
    """The examples of a pipeline, by index. If ``together``, ``example`` also takes a vector of indices."""

    examples: int
    specs: Specs
    example: Example
    together: bool

    def batch(self, indices: tf.Tensor) -> Any:
        """Return the batch of the examples with these indices, an int64 vector that may be empty."""
        if self.together:
            return self.example(indices)
        return one_by_one(indices, self.example, self.specs)

    def stream(self, indices: tf.data.Dataset) -> tf.data.Dataset:
        """Return the examples, one by one, of a dataset of vectors of indices."""
        if self.together:
            return indices.map(self.example).unbatch()
        examples = indices.unbatch().map(self.example, num_parallel_calls=tf.data.AUTOTUNE)
        return keep_spec(examples, self.specs.example)


def lookup(dataset: tf.data.Dataset) -> Lookup | None:
    """Return the examples of ``dataset`` by index, in the order of reading; None if it has to be read.

    Slices of tensors and ranges can be looked up by index. The results of ``map`` (without random ops,
    changes of variables and Python functions), ``zip``, ``take``, ``skip``, ``shard``, ``concatenate`` and
    ``prefetch`` can be looked up, too.
    """
    examples = int(dataset.cardinality())
    example = _example(dataset) if examples > 0 else None
    if example is None:
        return None
    together = {tf_internals.node_name(node) for node in tf_internals.walk_pipeline(dataset)} <= {
        "TensorSlice", "Take", "Skip", "Zip", "Prefetch", "Options"
    } and all(isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(dataset.element_spec))  # fmt: skip
    return Lookup(examples, specs_of(dataset), example, together)


def _example(node: tf.data.Dataset) -> Example | None:
    """Return a function that finds an example of a pipeline that ends with ``node``; see ``lookup``."""
    kind = tf_internals.node_name(node)
    tensors = tf_internals.dense_slices(node)
    if tensors is not None:
        return lambda index: tf.nest.map_structure(lambda tensor: tf.gather(tensor, index), tensors)
    inputs = tf_internals.node_inputs(node)
    if kind in ("Prefetch", "Options", "Take", "Skip", "Map", "ParallelMap"):
        (source,) = inputs
        find = _example(source)
        if find is None or kind in ("Prefetch", "Options", "Take"):
            return find
        if kind == "Skip":
            skipped = int(source.cardinality() - node.cardinality())
            return lambda index: find(index + skipped)
        function = tf_internals.map_function(node)
        return (lambda index: function(find(index))) if function else None
    if kind == "Zip":
        finds = tf.nest.map_structure(_example, inputs)
        if None in tf.nest.flatten(finds):
            return None
        return lambda index: tf.nest.map_structure(lambda find: find(index), finds)
    if {tf_internals.node_name(part) for part in tf_internals.walk_pipeline(node)} <= _PLAIN:
        return lambda index: tf.data.experimental.at(node, index)
    return None


# --- Examples and batches


def one_by_one(
    values: tf.Tensor, function: Callable[[tf.Tensor], object], specs: Specs, parallel: int | None = None
) -> Any:
    """Make the batch of ``function(value)`` for every value of a vector, which may be empty."""

    def batch() -> Any:
        examples = tf.data.Dataset.from_tensor_slices(values).map(function, num_parallel_calls=parallel)
        examples = keep_spec(examples, specs.example)
        return batched(examples, tf.size(values, tf.int64), has_ragged(specs.batch)).get_single_element()

    made = tf.cond(tf.size(values) > 0, batch, lambda: no_rows(specs.batch))
    for part, spec in zip(tf.nest.flatten(made), tf.nest.flatten(specs.batch), strict=True):
        if isinstance(part, tf.Tensor):
            part.set_shape(spec.shape)
    return made


def specs_of(dataset: tf.data.Dataset) -> Specs:
    """Return the types of the examples of a dataset and of batches of them."""
    batches = batched(dataset, 1, is_ragged(dataset))
    return Specs(batches.unbatch().element_spec, batches.element_spec)


def batched(
    examples: tf.data.Dataset, size: object, ragged: bool, drop_remainder: bool = False
) -> tf.data.Dataset:
    """Make batches of examples. If ``ragged``, parts with unknown sizes are ragged in the batches."""
    make = examples.ragged_batch if ragged else examples.batch
    return make(size, drop_remainder=drop_remainder)


def is_ragged(dataset: tf.data.Dataset) -> bool:
    """Return whether examples are ragged, or were ragged before a ``map``, whose function sees tensors."""
    return any(has_ragged(node.element_spec) for node in tf_internals.walk_pipeline(dataset))


def has_ragged(specs: object) -> bool:
    """Return whether nested types have a ragged part."""
    return any(isinstance(spec, tf.RaggedTensorSpec) for spec in tf.nest.flatten(specs))


def keep_spec(examples: tf.data.Dataset, spec: object) -> tf.data.Dataset:
    """Give examples the type ``spec`` again: a function sees ragged rows as tensors, and returns tensors."""
    if not has_ragged(spec) or examples.element_spec == spec:
        return examples

    def as_batch_of_one(*example: object) -> Any:
        value = example if isinstance(spec, tuple) else example[0]
        return tf.nest.map_structure(one, spec, value)

    def one(part: object, value: object) -> Any:
        if isinstance(value, tf.SparseTensor):
            return tf.sparse.expand_dims(value, 0)
        row = tf.expand_dims(value, 0)
        if isinstance(part, tf.RaggedTensorSpec) and part.ragged_rank == 0:
            return tf.RaggedTensor.from_tensor(row, row_splits_dtype=part.row_splits_dtype)
        return row

    return examples.map(as_batch_of_one).unbatch()


def no_rows(batch_spec: Any) -> Any:
    """Make a batch without examples from the type of a batch."""

    def zero(part: Any) -> Any:
        sides = [side or 0 for side in part.shape[1:]] if part.shape.rank is not None else []
        if isinstance(part, tf.SparseTensorSpec):
            shape = tf.constant([0, *sides], tf.int64)
            return tf.SparseTensor(tf.zeros([0, len(sides) + 1], tf.int64), tf.zeros([0], part.dtype), shape)
        if isinstance(part, tf.RaggedTensorSpec) and part.ragged_rank > 0:
            values = tf.zeros([0, *sides[part.ragged_rank :]], part.dtype)
            splits = [tf.zeros([1], part.row_splits_dtype)] * part.ragged_rank
            return tf.RaggedTensor.from_nested_row_splits(values, splits)
        return tf.zeros([0, *sides], part.dtype)

    return tf.nest.map_structure(zero, batch_spec)

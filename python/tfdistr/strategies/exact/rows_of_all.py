"""The first rows of all workers, as one batch that every worker has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfdistr.collectives.interface import Collectives
from tfdistr.data.order.shard import cut_rows
from tfdistr.strategies.exact.loss_weighting import count_examples


def exchanged(collectives: Collectives | None, note: object) -> list[Any]:
    """Return the notes of all workers, values that JSON can express; without peers only the own note."""
    if collectives is None:
        return [note]
    return [json.loads(text) for text in collectives.exchange(json.dumps(note))]


def rows_between(batch: object, first: int, count: int) -> Any:
    """Return ``count`` rows of a batch, from the row ``first`` on."""
    ends = tf.constant(first, tf.int64), tf.constant(first + count, tf.int64)
    return cut_rows(batch, lambda _: ends)


def batches_of_all(collectives: Collectives | None, batch: object) -> list[Any]:
    """Return the batches of all workers; their structure is the same, their numbers of rows may differ."""
    if collectives is None:
        return [batch]
    tensors = tf.nest.flatten(batch, expand_composites=True)
    content = b"".join(tf.io.serialize_tensor(tensor).numpy() for tensor in tensors)
    sizes = [len(tf.io.serialize_tensor(tensor).numpy()) for tensor in tensors]
    all_sizes = exchanged(collectives, sizes)
    totals = [-(-sum(each) // 4) for each in all_sizes]  # in words of 32 bits, which all backends can add
    words = np.zeros(sum(totals), np.int32)
    first = sum(totals[: collectives.index])
    own = np.frombuffer(content + bytes(-len(content) % 4), np.int32)
    words[first : first + len(own)] = own
    [total] = collectives.all_reduce(tf.distribute.ReduceOp.SUM, [tf.constant(words)])
    contents = [part.tobytes() for part in np.split(total.numpy(), np.cumsum(totals)[:-1])]
    return [_unpacked(part, each, batch) for part, each in zip(contents, all_sizes, strict=True)]


def _unpacked(content: bytes, sizes: Sequence[int], form: object) -> Any:
    ends = np.cumsum(sizes)
    tensors = tf.nest.flatten(form, expand_composites=True)
    parsed = [
        tf.io.parse_tensor(content[end - size : end], tensor.dtype)
        for size, end, tensor in zip(sizes, ends, tensors, strict=True)
    ]
    return tf.nest.pack_sequence_as(form, parsed, expand_composites=True)


def concatenated(batches: Sequence[object]) -> Any:
    """Return batches as one batch."""

    def join(*parts: object) -> Any:
        if parts[0] is None or len(parts) == 1:
            return parts[0]
        if isinstance(parts[0], tf.SparseTensor):
            return tf.sparse.concat(0, list(parts))
        return tf.concat(parts, 0)

    return tf.nest.map_structure(join, *batches)


def sorted_rows(batch: object) -> Any:
    """Return a batch with its rows sorted by size, so that the rows of the workers are unlike each other.

    A step that chooses rows could otherwise choose the same rows of a batch and of its parts.
    """
    parts = [part for part in reversed(tf.nest.flatten(batch)) if isinstance(part, tf.Tensor)]
    numbers = next((part for part in parts if part.dtype.is_floating and part.shape.rank), None)
    if numbers is None:
        return batch
    sizes = tf.reduce_sum(tf.abs(tf.cast(numbers, tf.float32)), range(1, numbers.shape.rank))
    order = [int(row) for row in tf.argsort(sizes)]
    return concatenated([rows_between(batch, row, 1) for row in order])


def with_repeated_labels(batch: object) -> Any:
    """Return a batch whose labels are two of its labels in turn, if its labels are classes.

    A loss that compares examples of a class (of triplets, for example) is 0 for rows of different classes.
    """
    if not isinstance(batch, tuple) or len(batch) < 2 or not isinstance(batch[1], tf.Tensor):
        return batch
    labels = batch[1]
    rows = int(count_examples(batch))
    keys = [row.tobytes() for row in labels.numpy()] if _are_classes(labels) else []
    if len(set(keys)) < 2:
        return batch
    other = next(number for number, key in enumerate(keys) if key != keys[0])
    picked = tf.gather(labels, [other if number % 2 else 0 for number in range(rows)])
    return (batch[0], picked, *batch[2:])


def _are_classes(labels: tf.Tensor) -> bool:
    """Return whether labels are the numbers of classes, or one-hot."""
    if labels.dtype == tf.string or labels.shape.rank not in (1, 2):
        return False
    values = labels.numpy()
    if values.ndim == 2 and values.shape[1] > 1:
        return bool((((values == 0) | (values == 1)).all()) and (values.sum(1) == 1).all())
    return bool((values == np.round(values)).all())

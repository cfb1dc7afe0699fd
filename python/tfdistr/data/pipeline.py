"""From what the user passed to the batches that one worker trains on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr.data.context import WorkerContext
from tfdistr.data.order import Order
from tfdistr.data.shard import bounds, distribute_batches, mark_share
from tfdistr.data.source import Arrays, Source, leaves, make_source
from tfdistr.datasets import Dataset
from tfdistr.errors import ArgumentError

#: Examples that a stream of unknown or large size is shuffled over.
SHUFFLE_BUFFER = 10_000
#: The same for a data set of TensorFlow Datasets, which is stored in a random order already.
STORED_SHUFFLE_BUFFER = 1_000


@dataclass(frozen=True)
class WorkerData:
    """The batches of one worker, and how many make an epoch.

    Attributes:
        dataset: This worker's rows of every global batch.
        steps: Batches in an epoch; None if the dataset ends by itself after an epoch.
    """

    dataset: tf.data.Dataset
    steps: int | None


def make_data(
    source: Source, context: WorkerContext, steps: int | None = None, *, name: str = "x"
) -> WorkerData:
    """The batches of one worker.

    Args:
        source: What ``make_source`` returned.
        context: The worker, and the global batch size.
        steps: Steps of an epoch, if the user fixed them; the data then repeats as often as needed.
        name: What the user knows ``source`` as.

    Returns:
        Batches in the structure that Keras takes: ``(x,)``, ``(x, y)`` or ``(x, y, sample_weight)``.

    Raises:
        ArgumentError: The function did not return a dataset of examples (or of batches), or one that
            never ends although ``steps`` is None.
        DataShardError: The dataset cannot be split over the workers.
    """
    if isinstance(source, Dataset):
        if source.fits_in_memory():
            source = _examples_of(source)
        else:
            described = source
            source = lambda ctx: ctx.shard(described.dataset(), STORED_SHUFFLE_BUFFER)  # noqa: E731
    if isinstance(source, Arrays):
        return _from_arrays(source, context, steps)
    return _from_function(source, context, steps, name)


def _examples_of(described: Dataset) -> Arrays:
    examples = described.arrays()
    source = make_source(*(examples if isinstance(examples, tuple) else (examples,)))
    assert isinstance(source, Arrays)
    return source


def _from_arrays(source: Arrays, context: WorkerContext, steps: int | None) -> WorkerData:
    """Whole batches gathered by index, so that no example is touched alone."""
    assert context.global_batch_size is not None
    order = Order(source.examples, context.global_batch_size, context.seed, context.shuffle)
    arrays = [array for _, array in leaves(source.parts)]
    types = [_batch_type(array) for array in arrays]

    def gather(indices: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        return [array[indices].astype(kind, copy=False) for array, kind in zip(arrays, types, strict=True)]

    def batch(step: tf.Tensor) -> Any:
        indices = order.indices(step, context.num_workers, context.index)
        parts = tf.numpy_function(gather, [indices], [tf.as_dtype(kind) for kind in types], stateful=False)
        for part, array in zip(parts, arrays, strict=True):
            part.set_shape((None, *array.shape[1:]))
        return _unflatten(source.parts, iter(parts))

    # One stream over all epochs: the step alone says which examples come next.
    dataset = tf.data.Dataset.counter().map(batch).prefetch(tf.data.AUTOTUNE)
    return WorkerData(mark_share(dataset), steps or order.batches)


def _batch_type(array: np.ndarray[Any, Any]) -> Any:
    if np.issubdtype(array.dtype, np.floating):
        return np.dtype(keras.config.floatx())  # as Keras does with arrays
    return np.dtype(object) if array.dtype.kind in "USO" else array.dtype


def _unflatten(structure: Any, values: Any) -> Any:
    if structure is None:
        return None
    if isinstance(structure, dict):
        parts = {key: _unflatten(structure[key], values) for key in sorted(structure)}
        return {key: parts[key] for key in structure}
    if isinstance(structure, tuple):
        return tuple(_unflatten(part, values) for part in structure)
    return next(values)


def _from_function(
    function: Callable[..., Any], context: WorkerContext, steps: int | None, name: str
) -> WorkerData:
    dataset = function(context) if _takes_context(function) else function()
    if not isinstance(dataset, tf.data.Dataset):
        raise ArgumentError(
            f"The function `{name}` must return a tf.data.Dataset.",
            received=type(dataset).__name__,
            fix="For example tf.data.Dataset.from_tensor_slices((inputs, targets)).",
        )
    if steps is None and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        argument = "validation_steps" if name == "validation_data" else "steps_per_epoch"
        raise ArgumentError(
            f"`{argument}` must say where an epoch of a dataset that never ends is over.",
            received=f"a dataset of the function `{name}` that repeats for ever",
            fix=f"Leave repeat() out, or pass {argument}.",
        )
    if context.global_batch_size is None:
        batches = distribute_batches(dataset, context.num_workers, context.index)
    elif context.sharded_examples is not None:
        batches = _batches_of_share(dataset, context)
    else:
        if context.shuffle:
            examples = int(dataset.cardinality())
            buffer = examples if 0 < examples < SHUFFLE_BUFFER else SHUFFLE_BUFFER
            dataset = dataset.shuffle(buffer, seed=context.seed, reshuffle_each_iteration=True)
        batches = distribute_batches(
            dataset.batch(context.global_batch_size), context.num_workers, context.index
        )
    if steps:
        batches = batches.repeat()
    return WorkerData(mark_share(batches.prefetch(tf.data.AUTOTUNE)), steps)


def _batches_of_share(examples: tf.data.Dataset, context: WorkerContext) -> tf.data.Dataset:
    """Batches of a dataset that ``ctx.shard`` split, empty ones where this worker has no row."""
    size, total = context.global_batch_size, context.sharded_examples
    assert size is not None
    assert total is not None
    full = Order(total, size).batches - 1  # all batches but the last, which may be smaller
    own = context.batch_size or 0
    first, end = bounds(total - full * size, context.num_workers, context.index)
    last_own = end - first
    with_rows = (full if own else 0) + (1 if last_own else 0)
    batches = examples.batch(own or 1)
    empty = tf.data.Dataset.from_tensors(0).map(lambda _: _no_rows(batches.element_spec))
    # Batches without rows stand where this worker's share of a small batch is empty.
    before = empty.repeat(full if not own else 0)
    after = empty.repeat(0 if last_own else 1)
    made = before.concatenate(batches.take(with_rows)).concatenate(after)
    return made.apply(tf.data.experimental.assert_cardinality(full + 1))


def _no_rows(spec: Any) -> Any:
    def zero(part: Any) -> Any:
        sides = [side or 0 for side in part.shape[1:]] if part.shape.rank is not None else []
        if isinstance(part, tf.SparseTensorSpec):
            shape = tf.constant([0, *sides], tf.int64)
            return tf.SparseTensor(tf.zeros([0, len(sides) + 1], tf.int64), tf.zeros([0], part.dtype), shape)
        return tf.zeros([0, *sides], part.dtype)

    return tf.nest.map_structure(zero, spec)


def _takes_context(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD,
                  inspect.Parameter.VAR_POSITIONAL)  # fmt: skip
    return any(p.kind in positional for p in parameters)

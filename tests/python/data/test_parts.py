"""Batches whose parts do not have a row for each example: they cannot be split over workers."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfdistr.data.order.context import WorkerContext
from tfdistr.data.order.shard import distribute_batches
from tfdistr.data.pipeline.worker_data import make_data
from tfdistr.errors import ArgumentError, DataShardError

X = np.arange(48, dtype="float32").reshape(16, 3)
Y = X[:, :1]
W = np.array([1, 2, 3], "float32")
RULE = "Cannot split a batch over workers: not all of its parts have a row for each example."
FIX = (
    "Repeat what all rows share for each row, or make it a weight of the model. If each batch is one graph, "
    "train with one worker, or make batches of graphs that are padded to the same number of nodes."
)
BESIDE = "`x['w']`: 3 rows, `x['x']`: 8 rows, `y`: 8 rows"


def examples() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def with_constant(x: Any, y: Any) -> Any:
    return {"x": x, "w": tf.constant(W)}, y


def with_constants() -> Iterator[Any]:
    for first in (0, 8):
        yield {"x": X[first : first + 8], "w": W}, Y[first : first + 8]


def graphs() -> Iterator[Any]:
    for nodes in (5, 7):
        yield (np.ones((nodes, 3)), np.eye(nodes)), np.ones((nodes, 1))


def labeled_graphs() -> Iterator[Any]:
    for x, y in graphs():
        yield x, y[:1]


def dataset_of(generator: Callable[[], Iterator[Any]]) -> tf.data.Dataset:
    types = tf.TensorSpec([None, 3], tf.float64), tf.TensorSpec([None, None], tf.float64)
    return tf.data.Dataset.from_generator(
        generator, output_signature=(types, tf.TensorSpec([None, 1], tf.float64))
    )


REFUSED = {
    "a constant": (lambda: examples().batch(8).map(with_constant), BESIDE),
    "a constant beside known sizes": (
        lambda: examples().batch(8, drop_remainder=True).map(with_constant), BESIDE,
    ),
    "a constant of a generator": (with_constants, BESIDE),
    "graphs of a generator": (graphs, "`x[1]` of the shapes (5, 5) and (7, 7)"),
    "graphs of a dataset": (lambda: dataset_of(graphs), "`x[1]` of the shapes (5, 5) and (7, 7)"),
    "labels of graphs": (labeled_graphs, "`x[0]`: 5 rows, `x[1]`: 5 rows, `y`: 1 rows"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_batches_that_cannot_be_split_are_refused_with_the_part(case):
    make, received = REFUSED[case]
    with pytest.raises(DataShardError) as caught:
        make_data(make, WorkerContext(num_workers=2, index=0, global_batch_size=None))
    assert (caught.value.message, caught.value.received, caught.value.fix) == (RULE, received, FIX)


@pytest.mark.parametrize("case", REFUSED)
def test_one_worker_trains_on_them(case):
    make, _ = REFUSED[case]
    data = make_data(make, WorkerContext(num_workers=1, index=0, global_batch_size=None))
    assert len(list(data.dataset.take(2) if isinstance(data.dataset, tf.data.Dataset) else make())) == 2


def test_a_later_batch_that_cannot_be_split_is_refused():
    def batches() -> Iterator[Any]:
        yield from ((X[:8], Y[:8]), (X[:8], Y[:8]), (X[:8], Y[:3]))

    context = WorkerContext(num_workers=2, index=0, global_batch_size=None)
    fed = iter(make_data(batches, context, steps=3).dataset)
    assert next(fed)[0].shape == next(fed)[0].shape == (4, 3)
    with pytest.raises(DataShardError, match="Received: `x`: 8 rows, `y`: 3 rows"):
        next(fed)

    types = tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec([None, 1], tf.float32)
    split = iter(distribute_batches(tf.data.Dataset.from_generator(batches, output_signature=types), 2, 0))
    assert next(split)[0].shape == next(split)[0].shape == (4, 3)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        next(split)
    assert f"{RULE} Received: `y` beside `x`. Fix: {FIX}" in caught.value.message


def test_square_parts_of_one_size_are_rows():
    images = tf.data.Dataset.from_tensor_slices((np.ones((16, 8)), np.ones((16, 1)))).batch(8)
    unknown = images.map(lambda x, y: (tf.ensure_shape(tf.identity(x), [None, None]), y))
    for batches in (images, unknown):
        assert [x.shape[0] for x, _ in distribute_batches(batches, 2, 0)] == [4, 4]


def test_single_examples_are_not_taken_for_a_batch():
    one_hot = tf.data.Dataset.from_tensor_slices((np.ones((4, 28, 28)), np.ones((4, 10))))
    with pytest.raises(ArgumentError, match="Without `batch_size`, the dataset of the function `x`"):
        make_data(lambda: one_hot, WorkerContext(num_workers=1, index=0, global_batch_size=None))

"""Batches in NumPy arrays, for a loop that needs no ``tf.data``: those that the dataset has."""

import numpy as np
import pytest
import tensorflow as tf

import tfdistr
from tfdistr.data.order.context import WorkerContext
from tfdistr.data.pipeline import index_batches
from tfdistr.data.pipeline.worker_data import WorkerData, make_data
from tfdistr.data.source import make_source

EXAMPLES, BATCH = 13, 4
X = np.arange(26.0).reshape(13, 2)
Y = np.arange(13)
TEXT = [f"number {i}" for i in range(13)]

SOURCES = {
    "arrays": make_source({"a": X, "b": (Y.astype("uint8"), TEXT)}, Y, Y / 10),
    "one array": make_source(Y),
    "tensors": lambda: tf.data.Dataset.from_tensor_slices((X, Y)),
    "a part of tensors": lambda: tf.data.Dataset.from_tensor_slices({"x": X}).skip(2).take(9),
    "digits": tfdistr.load_dataset("digits", "test"),
}


def made(source, workers: int = 1, index: int = 0, **more) -> WorkerData:
    return make_data(source, WorkerContext(workers, index, BATCH, **{"seed": 3} | more))


def assert_same(one, other) -> None:
    tf.nest.assert_same_structure(one, other)
    for a, b in zip(
        *(map(tf.convert_to_tensor, tf.nest.flatten(nest)) for nest in (one, other)), strict=True
    ):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("name", SOURCES)
def test_the_batches_are_those_of_the_dataset(name):
    for index in range(2):
        data = made(SOURCES[name], 2, index)
        for step, batch in enumerate(data.dataset.take(9)):
            assert_same(data.arrays.batch(step), batch)


def test_a_step_is_the_same_whatever_came_before():
    data, fresh = made(SOURCES["arrays"]), made(SOURCES["arrays"])
    for step in (1_000_000, 2, 1, 0, 3, 7, 2):
        assert_same(data.arrays.batch(step), fresh.arrays.batch(step))
    later = make_data(SOURCES["arrays"], WorkerContext(1, 0, BATCH, seed=3), start=1_000_000)
    assert_same(next(iter(later.dataset)), later.arrays.batch(1_000_000))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("looked_up", [1, 8192])
@pytest.mark.parametrize("name", ["arrays", "tensors"])
def test_batches_are_stacked_up_to_the_end_of_a_pass(name, looked_up, workers, monkeypatch):
    monkeypatch.setattr(index_batches, "_LOOKED_UP", looked_up)
    data = made(SOURCES[name], workers, workers - 1)
    assert data.steps == 4
    step, sizes = 0, []
    while step < 9:
        stack = data.arrays.batches(step, 2)
        count, *_ = {len(part) for part in tf.nest.flatten(stack)}
        for number in range(count):
            one = tf.nest.map_structure(lambda part, number=number: part[number], stack)
            assert_same(one, data.arrays.batch(step + number))
        step += count
        sizes.append(count)
    assert sizes == [2, 1, 1, 2, 1, 1, 2]
    assert len(data.arrays.batches(1, 100)[-1]) == 2


def test_a_short_last_batch_may_be_dropped():
    data = made(SOURCES["one array"], drop_remainder=True)
    assert data.steps == 3
    stack = data.arrays.batches(3, 10)
    assert stack.shape == (3, 4)
    assert len(np.unique(stack)) == 12


def test_what_is_handed_out_is_not_the_data_itself():
    data = made(make_source(Y), shuffle=False)
    data.arrays.batch(0)[:] = 100
    assert data.arrays.batch(0).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "function",
    [lambda: tf.data.Dataset.range(13).filter(lambda i: True),
     lambda: tf.data.Dataset.range(13).map(lambda i: i),
     lambda ctx: ctx.shard(tf.data.Dataset.range(13)),
     lambda: tf.data.Dataset.from_tensor_slices(tf.sparse.from_dense(np.eye(13)))],
)  # fmt: skip
def test_what_is_made_example_by_example_is_read_from_the_dataset(function):
    data = made(function)
    assert data.arrays is None
    assert len(list(data.dataset.take(4))) == 4

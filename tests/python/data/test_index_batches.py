"""Batches in NumPy arrays, for a loop that needs no ``tf.data``: those that the dataset has."""

import gc
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from launched import wait_for
from nested import assert_same

import tfdistr
from tfdistr.data.order.context import WorkerContext
from tfdistr.data.order.shuffle_order import Order
from tfdistr.data.pipeline import index_batches
from tfdistr.data.pipeline.index_batches import Batches, ReadAhead
from tfdistr.data.pipeline.worker_data import WorkerData, make_data
from tfdistr.data.source import make_source
from tfdistr.errors import ArgumentError

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


ROWS = 22  # five batches, and one of two rows


class Rows:
    """Rows that are their indices, and what was asked for; example ``damaged`` cannot be read."""

    def __init__(self, damaged: int | None = None) -> None:
        self.damaged = damaged
        self.asked: list[list[int]] = []
        self.threads: set[str] = set()

    def take(self, indices: np.ndarray) -> tuple[np.ndarray]:
        self.asked.append(indices.tolist())
        self.threads.add(threading.current_thread().name)
        if self.damaged in indices:
            raise ArgumentError("A file must be whole.", received="a torn file", fix="Write it again.")
        return (indices.copy(),)


def of_rows(rows: Rows) -> Batches:
    return Batches(rows.take, Order(ROWS, BATCH), 1, 0, ahead=True)


@pytest.mark.parametrize("at_a_time", [1, 2, 100])
def test_the_batches_are_those_of_any_step(at_a_time):
    ahead, expected = ReadAhead(of_rows(Rows()), at_a_time), of_rows(Rows())
    for step, count in [(0, 1), (1, 3), (2, 9), (5, 4), (6, 1), (7, 2), (0, 2), (1000, 3), (999, 1)]:
        (found,) = ahead.batches(step, count)
        assert 1 <= len(found) <= count
        for number, batch in enumerate(found):
            np.testing.assert_array_equal(batch, expected.batch(step + number)[0])


def test_the_following_steps_are_read_before_they_are_wanted():
    rows = Rows()
    ahead = ReadAhead(of_rows(rows), 2)
    ahead.batches(0, 1)
    assert wait_for(lambda: len(rows.asked) == 2, 10)
    ahead.batches(1, 1)
    time.sleep(0.1)
    assert [len(asked) for asked in rows.asked] == [8, 8], "two steps are read, and the two after them"
    assert rows.threads == {"tfdistr-read-ahead_0"}


def test_an_error_is_raised_where_its_batches_are_wanted():
    ahead = ReadAhead(of_rows(Rows(damaged=9)), 1)
    assert [len(ahead.batches(step, 1)[0]) for step in (0, 1)] == [1, 1]
    for _ in range(2):
        with pytest.raises(ArgumentError, match="a torn file"):
            ahead.batches(2, 1)


def test_the_thread_ends_with_the_loop():
    before = set(threading.enumerate())
    ahead = ReadAhead(of_rows(Rows()), 1)
    ahead.batches(0, 1)
    (thread,) = set(threading.enumerate()) - before
    del ahead
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()

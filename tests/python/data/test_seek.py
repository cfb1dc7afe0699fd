"""Every source gives the batches of one worker at any number of workers, and from any step on."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from slow import mostly_slow

from tfdistr.data.order.context import WorkerContext
from tfdistr.data.order.shuffle_order import Order
from tfdistr.data.pipeline.worker_data import make_data
from tfdistr.data.source import make_source
from tfdistr.errors import ArgumentError, DataShardError

EXAMPLES, BATCH, SEED = 13, 4, 3
FAR = 1_000_000


def numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(EXAMPLES)


def in_order() -> tf.data.Dataset:
    """Examples that can only be read one after the other; their number is known."""
    counted = tf.data.experimental.assert_cardinality(EXAMPLES)
    return numbers().filter(lambda i: True).apply(counted)


def counting() -> tf.data.Dataset:
    """The same from a generator, which does not know their number."""
    number = tf.TensorSpec([], tf.int64)
    return tf.data.Dataset.from_generator(lambda: iter(range(EXAMPLES)), output_signature=number)


def names() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices([str(i) for i in range(EXAMPLES)])


def parse(text: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_number(text, tf.int64)


BY_INDEX: dict[str, Any] = {
    "arrays": make_source(np.arange(EXAMPLES)),
    "tensors": lambda: tf.data.Dataset.from_tensor_slices(tf.range(EXAMPLES)),
    "a range": numbers,
    "a map": lambda: names().map(parse, num_parallel_calls=2),
    "ctx.shard of tensors": lambda ctx: ctx.shard(names()).map(parse, num_parallel_calls=2),
    "ctx.shard of a map": lambda ctx: ctx.shard(names().map(parse)),
}
READ: dict[str, Any] = {
    "in order": in_order,
    "a generator": counting,
    "a shuffle of the user's": lambda: in_order().shuffle(5, seed=1),
    "ctx.shard in order": lambda ctx: ctx.shard(in_order()).map(lambda i: i),
    "ctx.shard of a generator": lambda ctx: ctx.shard(counting()),
    "ctx.shard of a shuffle of the user's": lambda ctx: ctx.shard(in_order().shuffle(5, seed=1)),
    "ctx.shard and a cache": lambda ctx: ctx.shard(names()).map(parse).cache(),
    "ctx.shard in order and a cache": lambda ctx: ctx.shard(counting()).cache(),
}
BATCHES: dict[str, Any] = {
    "batches": lambda: numbers().batch(BATCH),
    "batches of a number that is not known": lambda: counting().batch(BATCH),
    "batches with a shuffle": lambda: numbers().shuffle(9, seed=1).batch(BATCH),
}
SOURCES = BY_INDEX | READ | BATCHES
QUICK = ("a map", "ctx.shard in order")


def data(name: str, num_workers: int = 1, index: int = 0, start: int = 0, **more: Any):
    steps = more.pop("steps", None)
    size = None if name in BATCHES else BATCH
    context = WorkerContext(num_workers, index, size, **{"seed": SEED, "shuffle": True} | more)
    return make_data(SOURCES[name], context, steps, start)


def ids(batch: Any) -> list[int]:
    return (batch[0] if isinstance(batch, tuple) else batch).numpy().tolist()


def batches(name: str, count: int, num_workers: int = 1, start: int = 0, **more: Any) -> list[list[int]]:
    """Global batches: the workers' parts of each step, one after the other."""
    parts = [data(name, num_workers, index, start, **more).dataset for index in range(num_workers)]
    steps = [list(map(ids, part.take(count))) for part in parts]
    assert [len(part) for part in steps] == [count] * num_workers
    return [[i for rows in step for i in rows] for step in zip(*steps, strict=True)]


def passes_of(found: list[list[int]], batches_of_pass: int = 4) -> list[list[int]]:
    return [
        [i for batch in found[first : first + batches_of_pass] for i in batch]
        for first in range(0, len(found), batches_of_pass)
    ]


# From which step on, and with how many workers: the slow sources take turns, as each pipeline takes its time.
BEGINS = [(0, 3), (3, 2), (4, 3), (11, 1)]


# Slow: TensorFlow builds pipelines for each source, for one to three workers.
@pytest.mark.parametrize("name", mostly_slow(SOURCES, quick=QUICK[:1]))
def test_workers_and_steps(name):
    # With steps, so that one worker continues after an epoch whose length it does not know.
    one = batches(name, 12, steps=4)
    assert [len(batch) for batch in one] == [4, 4, 4, 1] * 3
    assert all(sorted(found) == list(range(EXAMPLES)) for found in passes_of(one))
    shuffled = name not in BATCHES and "cache" not in name
    assert len(set(map(tuple, passes_of(one)))) == (3 if shuffled or "shuffle" in name else 1)
    turn = list(SOURCES).index(name) % len(BEGINS)
    for start, workers in BEGINS if name in QUICK[:1] else BEGINS[turn : turn + 1]:
        assert batches(name, 12 - start, workers, start) == one[start:], f"from {start}, {workers} workers"


@pytest.mark.parametrize("name", BY_INDEX)
def test_any_step_is_found_by_index(name):
    order = Order(EXAMPLES, BATCH, SEED, shuffle=True)
    expected = [order.indices(tf.constant(FAR + i, tf.int64)).numpy().tolist() for i in range(5)]
    assert batches(name, 5, 2, FAR) == expected


def test_drop_remainder():
    one = batches("a map", 9, drop_remainder=True, steps=3)
    assert [len(batch) for batch in one] == [4] * 9
    assert all(len(set(found)) == 12 for found in passes_of(one, 3))
    assert data("a map", 2, drop_remainder=True).steps == 3
    assert batches("a map", 9, 3, drop_remainder=True) == one
    assert batches("a map", 5, 2, 4, drop_remainder=True) == one[4:]


def test_drop_remainder_needs_a_full_batch():
    with pytest.raises(ArgumentError) as caught:
        make_data(numbers, WorkerContext(2, 0, 14, drop_remainder=True))
    assert str(caught.value).splitlines()[1] == "Received: 13 examples, a global batch of 14"
    assert make_data(numbers, WorkerContext(2, 0, 13, drop_remainder=True)).steps == 1


@pytest.mark.parametrize("name", SOURCES)
def test_all_workers_know_their_steps(name, caplog):
    with caplog.at_level(logging.INFO, logger="tfdistr"):
        assert data(name, 2).steps == 4
    unknown = name in ("a generator", "batches of a number that is not known", "ctx.shard of a generator",
                       "ctx.shard in order and a cache")  # fmt: skip
    assert ("counting the" in caplog.text) is unknown
    assert data(name, 2, steps=7).steps == 7


def test_one_worker_does_not_count(caplog):
    with caplog.at_level(logging.INFO, logger="tfdistr"):
        found = data("a generator")
    assert found.steps is None
    assert "counting" not in caplog.text
    next(iter(found.dataset))  # an iterator that is left has not ended a pass
    epochs = [ids(batch) for _ in range(3) for batch in found.dataset]
    assert epochs == batches("a generator", 12, 2)


def test_steps_given_count_nothing(caplog):
    def endless() -> tf.data.Dataset:
        return tf.data.Dataset.from_generator(
            lambda: iter(int, 1), output_signature=tf.TensorSpec([], tf.int64)
        )

    with caplog.at_level(logging.INFO, logger="tfdistr"):
        found = make_data(endless, WorkerContext(2, 0, 4, shuffle=False), steps=5)
    assert "counting" not in caplog.text
    assert [len(batch) for batch in found.dataset.take(3)] == [2, 2, 2]


def test_a_generator_that_is_used_up_ends_the_data():
    left = iter(range(6))
    once = tf.data.Dataset.from_generator(lambda: left, output_signature=tf.TensorSpec([], tf.int64))
    found = make_data(lambda: once, WorkerContext(1, 0, 4, shuffle=False), steps=2)
    assert [batch.numpy().tolist() for batch in found.dataset] == [[0, 1, 2, 3], [4, 5]]


def test_an_endless_dataset_goes_on_from_any_step():
    function: Callable[[], tf.data.Dataset] = lambda: numbers().repeat()  # noqa: E731
    one = [ids(b) for b in make_data(function, WorkerContext(1, 0, 4, seed=SEED), 5).dataset.take(12)]
    parts = [make_data(function, WorkerContext(2, i, 4, seed=SEED), 5, 7).dataset.take(5) for i in range(2)]
    assert [ids(a) + ids(b) for a, b in zip(*parts, strict=True)] == one[7:]


def test_an_empty_dataset_is_refused():
    for function in (lambda: numbers().take(0), lambda: numbers().filter(lambda i: False)):
        with pytest.raises(DataShardError) as caught:
            make_data(function, WorkerContext(2, 0, 4))
        assert str(caught.value).splitlines() == [
            "`x` needs at least one example.",
            "Received: an empty dataset",
            "Fix: Check the data that the function reads.",
        ]


def test_a_shuffle_of_the_users_goes_on_alike_on_all_workers(caplog, monkeypatch):
    """Keras reads one batch first, by an iterator that it leaves; nothing more is read ahead of a pass."""
    monkeypatch.setattr("test_seek.EXAMPLES", 2)
    found = []
    for workers in (1, 2):
        parts = [data("a shuffle of the user's", workers, index) for index in range(workers)]
        assert parts[0].steps == 1
        for part in parts:
            next(iter(part.dataset))
        steps = zip(*(part.dataset.take(12) for part in parts), strict=True)
        found.append([[i for rows in step for i in ids(rows)] for step in steps])
    assert found[0] == found[1]
    assert {tuple(batch) for batch in found[0]} == {(0, 1), (1, 0)}
    assert not caplog.records
    data("a shuffle of the user's", 2, 0, start=3)
    assert "has its own shuffle(), so it may resume in another order" in caplog.text


def test_the_first_step_is_a_whole_number():
    with pytest.raises(ArgumentError, match="`start` must be a whole number of at least 0"):
        make_data(numbers, WorkerContext(1, 0, 4), None, -1)

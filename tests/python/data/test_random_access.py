"""Pipelines whose examples are looked up by index, and those that are read in order."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from nested import assert_same
from refusals import refusal

from tfdistr.data.order.context import WorkerContext
from tfdistr.data.pipeline.random_access import lookup
from tfdistr.data.pipeline.worker_data import make_data
from tfdistr.errors import DataShardError

RAGGED = tf.ragged.constant([[1], [2, 3], [], [4, 5, 6], [7]])
DEEP = tf.ragged.constant([[[1], [2, 3]], [], [[4]], [[], [5]], [[6]]])
SPARSE = tf.sparse.from_dense(np.diag(np.arange(1, 6)))


def numbers(end: int = 5) -> tf.data.Dataset:
    return tf.data.Dataset.range(end)


def pairs() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(({"x": np.arange(10.0).reshape(5, 2)}, list("abcde")))


OFFSET = tf.Variable(7, dtype=tf.int64)
TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)


def branch(i: tf.Tensor) -> tf.Tensor:
    return tf.cond(i > 2, lambda: tf.while_loop(lambda k: k < 9, lambda k: [k + i], [i])[0], lambda: -i)


BY_INDEX = {
    "slices": pairs,
    "range": lambda: tf.data.Dataset.range(3, 30, 4),
    "map": lambda: pairs().map(lambda x, y: {"sum": tf.reduce_sum(x["x"]), "y": y}),
    "parallel map": lambda: pairs().map(lambda x, y: (y, x), num_parallel_calls=2).prefetch(3),
    "map of map": lambda: numbers().map(lambda i: i + 1).map(lambda i: (i, 2 * i)),
    "branches and loops": lambda: numbers().map(branch),
    "a variable": lambda: numbers().map(lambda i: i + OFFSET),
    "a table": lambda: pairs().map(lambda x, y: TABLE.lookup(y)),
    "take and skip": lambda: pairs().map(lambda x, y: y).skip(1).take(3).map(tf.strings.length),
    "zip": lambda: tf.data.Dataset.zip({"a": numbers().map(lambda i: -i), "b": (pairs(), numbers(9))}),
    "concatenate": lambda: numbers().concatenate(numbers(3)),
    "shard": lambda: numbers().shard(2, 1),
    "one": lambda: tf.data.Dataset.from_tensors([1, 2]),
    "options": lambda: numbers().with_options(tf.data.Options()),
    "ragged": lambda: tf.data.Dataset.from_tensor_slices({"r": RAGGED, "d": DEEP, "n": tf.range(5)}),
    "sparse": lambda: tf.data.Dataset.from_tensor_slices((SPARSE, tf.range(5))),
    "sizes that are not known": lambda: pairs().map(lambda x, y: tf.io.decode_raw(y, tf.uint8)),
}

READ = {
    "filter": lambda: numbers().filter(lambda i: i > 1),
    "generator": lambda: tf.data.Dataset.from_generator(lambda: iter(range(5)), output_types=tf.int64),
    "interleave": lambda: numbers().interleave(lambda i: numbers(2)),
    "flat_map": lambda: numbers().flat_map(lambda i: numbers(2)),
    "shuffle": lambda: numbers().shuffle(5, seed=1),
    "cache": lambda: numbers().cache(),
    "repeat": lambda: numbers().repeat(2),
    "random numbers": lambda: numbers().map(lambda i: tf.random.uniform([])),
    "random numbers in a function": lambda: numbers().map(tf.function(lambda i: tf.random.uniform([]))),
    "a variable that changes": lambda: numbers().map(lambda i: i + OFFSET.assign_add(0)),
    "Python": lambda: numbers().map(lambda i: tf.py_function(lambda i: i, [i], tf.int64)),
    "a map of what is read": lambda: numbers().shuffle(5, seed=1).map(lambda i: i),
    "a zip with what is read": lambda: tf.data.Dataset.zip(numbers(), numbers().shuffle(5, seed=1)),
    "unbatch": lambda: numbers().batch(2).unbatch(),
    "nothing": lambda: numbers(0),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_has_to_be_read(name):
    assert lookup(READ[name]()) is None


@pytest.mark.parametrize("name", BY_INDEX)
def test_batches_are_those_of_tf_data(name):
    make = BY_INDEX[name]
    found = lookup(make())
    assert found is not None
    assert found.examples == len(list(make()))

    def function(ctx: WorkerContext) -> tf.data.Dataset:
        return ctx.shard(make())

    context = WorkerContext(1, 0, 2, shuffle=False)
    data = make_data(function, context)
    ragged = "ragged" in name
    expected = make().ragged_batch(2) if ragged else make().batch(2)
    if ragged:
        assert str(data.dataset.element_spec) == str(expected.element_spec)
    for batch, other in zip(data.dataset.take(data.steps), expected, strict=True):
        assert_same(batch, other)


@pytest.mark.parametrize("how", ["map", "shard in order"])
def test_ragged_examples(how):
    workers = 3

    def function(ctx: WorkerContext) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices((RAGGED, tf.range(5)))
        if "in order" in how:
            dataset = dataset.filter(lambda r, i: True)
        if "shard" in how:
            dataset = ctx.shard(dataset)
        return dataset.map(lambda r, i: (r, i)) if "map" in how else dataset

    for shuffle in (False, True):
        steps = []
        for index in range(workers):
            data = make_data(function, WorkerContext(workers, index, 4, seed=3, shuffle=shuffle))
            steps.append(list(data.dataset.take(2 * data.steps)))
        for number, parts in enumerate(zip(*steps, strict=True)):
            rows = tf.concat([r for r, _ in parts], 0).to_list()
            ids = [int(i) for _, part in parts for i in part]
            assert len(ids) == (4, 1)[number % 2]
            assert rows == [RAGGED[i].numpy().tolist() for i in ids]
            assert shuffle or ids == [[0, 1, 2, 3], [4]][number % 2]


def test_images_of_unequal_size_are_decoded_after_the_split():
    images = [tf.io.encode_png(tf.fill([side, 3, 1], tf.constant(side, tf.uint8))) for side in (2, 5, 3, 4)]

    def function(ctx: WorkerContext) -> tf.data.Dataset:
        decoded = tf.data.Dataset.from_tensor_slices(images).map(tf.io.decode_png)
        return ctx.shard(decoded).map(lambda image: tf.image.resize(image, [2, 2])[0, 0, 0])

    parts = [make_data(function, WorkerContext(2, i, 4, shuffle=False)).dataset.take(1) for i in range(2)]
    assert [batch.numpy().tolist() for part in parts for batch in part] == [[2, 5], [3, 4]]


@pytest.mark.parametrize(
    ("after", "received"),
    [
        (lambda share: share.filter(lambda i: i > 2), "filter"),
        (lambda share: share.map(lambda i: i).repeat(2), "repeat"),
        (lambda share: share.batch(2).map(lambda i: i), "batch"),
        (lambda share: share.skip(1).take(1), "skip, take"),
    ],
)
def test_what_may_not_follow_shard(after, received):
    function = lambda ctx: after(ctx.shard(numbers()))  # noqa: E731
    assert f"Received: {received}" in refusal(DataShardError, make_data, function, WorkerContext(2, 0, 2))


def test_two_shards_go_together():
    def function(ctx: WorkerContext) -> tf.data.Dataset:
        return tf.data.Dataset.zip(ctx.shard(numbers()), ctx.shard(numbers().map(lambda i: 10 * i)))

    batches = list(make_data(function, WorkerContext(2, 1, 2, seed=3)).dataset.take(3))
    assert all((10 * a).numpy().tolist() == b.numpy().tolist() for a, b in batches)


def test_many_iterators_over_a_map_in_parallel():
    # tf.data.experimental.at() ends the process here, which is why it is not used on a map.
    data = make_data(lambda: numbers(500).map(lambda i: i * 2, 4), WorkerContext(2, 0, 50, seed=3))
    first = [[batch.numpy().tolist() for batch in data.dataset.take(9)] for _ in range(8)]
    assert all(found == first[0] for found in first)


EXAMPLES, BATCH, PASSES = 103, 10, 4
STEPS = -(-EXAMPLES // BATCH)

Decode = Callable[[tf.Tensor], tf.Tensor]


def in_order() -> tf.data.Dataset:
    return numbers(EXAMPLES).filter(lambda i: True)


# Sources, given what decodes an example.
SHARED: dict[str, Callable[[Decode], Callable[..., tf.data.Dataset]]] = {
    "ctx.shard": lambda decode: lambda ctx: ctx.shard(numbers(EXAMPLES)).map(decode),
    "ctx.shard in order": lambda decode: lambda ctx: ctx.shard(in_order()).map(decode),
    "no ctx.shard": lambda decode: lambda: numbers(EXAMPLES).map(decode),
}


class Decoder:
    """Decodes a number, and notes that it did. Python that keeps no state, as far as TensorFlow knows."""

    def __init__(self, stateful: bool = False) -> None:
        self.calls: list[int] = []
        self.stateful = stateful

    def __call__(self, number: tf.Tensor) -> tf.Tensor:
        decoded = tf.numpy_function(self._decode, [number], tf.int64, stateful=self.stateful)
        decoded.set_shape([])
        return decoded

    def _decode(self, number: Any) -> Any:
        self.calls.append(int(number))
        return np.int64(10 * number)


def run(name: str, workers: int, shuffle: bool) -> tuple[list[list[list[int]]], list[list[int]]]:
    """The batches of each worker over some passes, and what it decoded for them."""
    found, decoded = [], []
    for index in range(workers):
        decoder = Decoder()
        context = WorkerContext(workers, index, BATCH, seed=3, shuffle=shuffle)
        data = make_data(SHARED[name](decoder), context)
        assert data.steps == STEPS
        found.append([batch.numpy().tolist() for batch in data.dataset.take(PASSES * STEPS)])
        decoded.append(list(decoder.calls))
    return found, decoded


@pytest.mark.parametrize(
    ("name", "shuffle"), [("ctx.shard in order", True), ("no ctx.shard", True), ("ctx.shard", False)]
)
def test_each_worker_decodes_its_own_examples(name, shuffle):
    (one,), _ = run(name, 1, shuffle)
    for workers in (1, 3):
        found, decoded = run(name, workers, shuffle)
        assert [sum(parts, []) for parts in zip(*found, strict=True)] == one  # noqa: RUF017
        for batches, calls in zip(found, decoded, strict=True):
            own = Counter(i // 10 for batch in batches for i in batch)
            ahead = Counter(calls)
            ahead.subtract(own)
            # All that is used was decoded once each time; what is read ahead, at most a pass, comes later.
            assert min(ahead.values()) in (0, 1)
            assert max(ahead.values()) <= 2
            if not shuffle:
                assert set(calls) == set(own)
        total = sum(map(len, decoded))
        assert total >= PASSES * EXAMPLES
        if workers > 1:
            assert max(map(len, decoded)) < PASSES * EXAMPLES * 0.8


def test_a_map_that_keeps_a_state_runs_for_all_examples_in_order():
    decoder = Decoder(stateful=True)
    data = make_data(lambda: numbers(EXAMPLES).map(decoder), WorkerContext(2, 1, BATCH, shuffle=False))
    list(data.dataset.take(STEPS))
    assert decoder.calls[:EXAMPLES] == list(range(EXAMPLES))


def test_a_cache_after_shard_keeps_what_was_decoded():
    """Also where a worker has no row of the last batch, or of any."""
    found, workers, batch_size = [], 6, 4
    for index in range(workers):
        decoder = Decoder()
        context = WorkerContext(workers, index, batch_size, seed=3)
        data = make_data(
            lambda ctx, decoder=decoder: ctx.shard(numbers(EXAMPLES)).map(decoder).cache(), context
        )
        steps = data.steps
        batches = [batch.numpy().tolist() for batch in data.dataset.take(3 * steps)]
        assert batches[:steps] == batches[steps : 2 * steps] == batches[2 * steps :]
        used = sorted(i for batch in batches[:steps] for i in batch)
        assert sorted(10 * i for i in decoder.calls) == used
        found += used
    assert sorted(found) == [10 * i for i in range(EXAMPLES)]


def test_what_the_function_reads_itself_comes_to_an_end():
    seen: list[int] = []

    def function(ctx: WorkerContext) -> tf.data.Dataset:
        share = ctx.shard(numbers(EXAMPLES))
        seen.extend(int(i) for i in share)
        return share

    data = make_data(function, WorkerContext(2, 1, BATCH, seed=3))
    batches = [batch.numpy().tolist() for batch in data.dataset.take(STEPS)]
    assert seen == [i for batch in batches for i in batch]

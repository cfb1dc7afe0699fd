"""Pipelines whose examples are looked up by index, and those that are read in order."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

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


def same(left: Any, right: Any) -> None:
    def compare(a: Any, b: Any) -> None:
        assert type(a) is type(b)
        if isinstance(a, tf.SparseTensor):
            a, b = tf.sparse.to_dense(a), tf.sparse.to_dense(b)
        if isinstance(a, tf.RaggedTensor):
            assert a.to_list() == b.to_list()
        else:
            np.testing.assert_array_equal(a, b)

    tf.nest.map_structure(compare, left, right)


@pytest.mark.parametrize("name", BY_INDEX)
def test_the_examples_are_those_of_reading(name):
    dataset = BY_INDEX[name]()
    found = lookup(dataset)
    assert found is not None
    examples = list(dataset)
    assert found.examples == len(examples)
    for index, example in enumerate(examples):
        same(found.example(tf.constant(index, tf.int64)), example)


@pytest.mark.parametrize("name", READ)
def test_what_has_to_be_read(name):
    assert lookup(READ[name]()) is None


@pytest.mark.parametrize("name", BY_INDEX)
def test_batches_are_those_of_tf_data(name):
    make = BY_INDEX[name]

    def function(ctx: WorkerContext) -> tf.data.Dataset:
        return ctx.shard(make())

    context = WorkerContext(1, 0, 2, shuffle=False)
    data = make_data(function, context)
    ragged = "ragged" in name
    expected = make().ragged_batch(2) if ragged else make().batch(2)
    if ragged:
        assert str(data.dataset.element_spec) == str(expected.element_spec)
    for batch, other in zip(data.dataset.take(data.steps), expected, strict=True):
        same(batch, other)


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
    with pytest.raises(DataShardError) as caught:
        make_data(lambda ctx: after(ctx.shard(numbers())), WorkerContext(2, 0, 2))
    assert str(caught.value).splitlines() == [
        "After ctx.shard(), one example must stay one example.",
        f"Received: {received}",
        "Fix: Call it before ctx.shard(); distributed_fit() makes batches and repeats the data.",
    ]


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

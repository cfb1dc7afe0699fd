"""Every source gives the batches of one worker at any number of workers, and from any step on."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal
from slow import mostly_slow

from tfdistr.data.order.context import WorkerContext
from tfdistr.data.order.shuffle_order import Order
from tfdistr.data.pipeline import worker_data
from tfdistr.data.pipeline.worker_data import make_data
from tfdistr.data.source import make_source
from tfdistr.errors import ArgumentError, DataShardError

EXAMPLES, BATCH, SEED = 13, 4, 3
FAR = 1_000_000
X = np.arange(26.0).reshape(13, 2)
Y = np.arange(EXAMPLES)


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
QUICK = ("a map", "arrays", "ctx.shard of tensors", "ctx.shard of a generator", "a generator", "batches")


def worker(
    num_workers: int = 1, index: int = 0, batch_size: int | None = BATCH, shuffle: bool = True
) -> WorkerContext:
    return WorkerContext(num_workers, index, batch_size, seed=SEED, shuffle=shuffle)


def data(source: Any, num_workers: int = 1, index: int = 0, start: int = 0, **more: Any):
    """The data of a worker; ``source`` is the name of one of ``SOURCES``, or a source."""
    steps, size = more.pop("steps", None), BATCH
    if isinstance(source, str):
        size, source = None if source in BATCHES else BATCH, SOURCES[source]
    context = WorkerContext(num_workers, index, more.pop("batch_size", size), **{"seed": SEED} | more)
    return make_data(source, context, steps, start)


def ids(batch: Any) -> list[int]:
    return (batch[0] if isinstance(batch, tuple) else batch).numpy().tolist()


def batches(source: Any, count: int, num_workers: int = 1, start: int = 0, **more: Any) -> list[list[int]]:
    """Global batches: the workers' parts of each step, one after the other."""
    parts = [data(source, num_workers, index, start, **more).dataset for index in range(num_workers)]
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
@pytest.mark.parametrize("name", mostly_slow(SOURCES, quick=QUICK))
def test_workers_and_steps(name):
    # With steps, so that one worker continues after an epoch whose length it does not know.
    one = batches(name, 12, steps=4)
    assert [len(batch) for batch in one] == [4, 4, 4, 1] * 3
    assert all(sorted(found) == list(range(EXAMPLES)) for found in passes_of(one))
    shuffled = name not in BATCHES and "cache" not in name
    assert len(set(map(tuple, passes_of(one)))) == (3 if shuffled or "shuffle" in name else 1)
    turn = list(SOURCES).index(name) % len(BEGINS)
    for start, workers in BEGINS if name == QUICK[0] else BEGINS[turn : turn + 1]:
        assert batches(name, 12 - start, workers, start) == one[start:], f"from {start}, {workers} workers"


@pytest.mark.parametrize("name", ["arrays", "a range", "in order", "ctx.shard in order"])
def test_without_shuffle_the_examples_keep_their_order(name):
    assert batches(name, 4, 2, shuffle=False) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12]]


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


def test_a_shuffle_of_the_users_goes_on_alike_on_all_workers(caplog, monkeypatch):
    """Keras reads one batch first, by an iterator that it leaves; nothing more is read ahead of a pass."""
    monkeypatch.setattr("test_pipeline.EXAMPLES", 2)
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


@pytest.mark.parametrize(
    "x", [X, X.astype("float32"), Y.astype("int8"), Y.astype(str), (X, Y), {"b": X, "a": {"c": Y}}],
    ids=["float64", "float32", "int8", "text", "tuple", "dictionary"],
)  # fmt: skip
def test_the_types_of_arrays_are_known_before_their_dataset_is_made(x):
    data = make_data(make_source(x, Y, np.ones(13)), worker(2))
    known = data.element_spec
    assert "dataset" not in vars(data)
    assert known == data.dataset.element_spec


def test_rows_of_all_arrays_stay_together():
    source = make_source({"a": X, "b": (X * 2, Y)}, Y, Y / 10)
    data = make_data(source, worker())
    for x, y, weight in data.dataset.take(4):
        assert x["a"][:, 0].numpy().tolist() == (2 * y).numpy().tolist()
        assert x["b"][0][:, 1].numpy().tolist() == (4 * y + 2).numpy().tolist()
        assert x["b"][1].numpy().tolist() == y.numpy().tolist()
        np.testing.assert_allclose(weight, y.numpy() / 10, rtol=1e-6)


def test_types_are_those_that_keras_makes():
    source = make_source(
        {
            "double": X,
            "half": X.astype(np.float16),
            "byte": Y.astype(np.uint8),
            "text": ["é"] * 13,
            "bytes": [b"a"] * 13,
            "objects": np.array(["ab"] * 13, object),
            "logical": Y > 3,
            "long": Y,
        }
    )
    x = make_data(source, worker()).dataset.element_spec
    assert {name: spec.dtype.name for name, spec in x.items()} == {
        "double": "float32", "half": "float32", "byte": "uint8", "text": "string", "bytes": "string",
        "objects": "string", "logical": "bool", "long": "int64",
    }  # fmt: skip
    assert x["double"].shape.as_list() == [None, 2]
    (batch,) = make_data(source, worker(), steps=1).dataset.take(1)
    assert batch["text"].numpy()[0].decode() == "é"
    assert batch["bytes"].numpy()[0] == b"a"


def test_a_stream_that_is_too_long_for_memory_is_shuffled_in_part(monkeypatch):
    monkeypatch.setattr(worker_data, "SHUFFLE_BUFFER", 5)
    one, two = (batches("in order", 4, workers) for workers in (1, 2))
    assert one == two
    assert one[0][0] < 5
    assert sorted(sum(one, [])) == Y.tolist()  # noqa: RUF017


@pytest.mark.parametrize("seed", [0, 5])
def test_the_order_does_not_depend_on_a_seed_that_a_model_function_sets(seed):
    expected = batches("in order", 4, 2)
    try:
        tf.random.set_seed(seed)
        assert batches("in order", 4, 2) == expected
    finally:
        tf.random.set_seed(None)


def test_the_context_tells_what_a_function_may_need():
    seen = []

    def function(ctx):
        seen.append((ctx.num_workers, ctx.index, ctx.is_chief, ctx.batch_size, ctx.global_batch_size))
        return numbers()

    for index in range(3):
        make_data(function, worker(3, index, 8))
    make_data(lambda ctx: seen.append(ctx.batch_size) or numbers().batch(2), worker(2, 1, None))
    assert seen == [
        (3, 0, True, 2, 8), (3, 1, False, 3, 8), (3, 2, False, 3, 8), None
    ]  # fmt: skip


def test_shard_may_shuffle_over_less_than_everything():
    found = batches(lambda ctx: ctx.shard(in_order(), shuffle_buffer=2), 4, 2)
    assert found[0][0] in (0, 1)
    assert sorted(sum(found, [])) == Y.tolist()  # noqa: RUF017


def test_shard_of_structured_examples_with_empty_parts():
    def function(ctx):
        pairs = tf.data.Dataset.from_tensor_slices(({"x": X[:5].astype("float32"), "text": ["a"] * 5}, Y[:5]))
        return ctx.shard(pairs)

    parts = [list(make_data(function, worker(3, index)).dataset.take(2)) for index in range(3)]
    assert [[len(y) for _, y in part] for part in parts] == [[1, 0], [1, 0], [2, 1]]
    x, y = parts[0][1]
    assert x["x"].shape == (0, 2)
    assert (x["text"].dtype, y.dtype) == (tf.string, tf.int64)


def test_shard_of_sparse_examples_with_empty_parts():
    def function(ctx):
        return ctx.shard(tf.data.Dataset.from_tensor_slices(tf.sparse.from_dense(np.eye(3))))

    batches = [next(iter(make_data(function, worker(4, index, shuffle=False)).dataset)) for index in range(4)]
    rows = [tf.sparse.to_dense(batch).numpy() for batch in batches]
    assert [part.shape for part in rows] == [(0, 3), (1, 3), (1, 3), (1, 3)]
    assert np.concatenate(rows).tolist() == np.eye(3).tolist()


@pytest.mark.parametrize(
    ("function", "batch_size", "kind", "received"),
    [
        (lambda: [1, 2], 4, ArgumentError, "a function that returned a list of length 2"),
        (lambda: numbers().repeat(), 4, ArgumentError, "a dataset of the function `x` that repeats forever"),
        (lambda ctx: ctx.shard(numbers().repeat()), 4, DataShardError, "a dataset that repeats forever"),
        (lambda ctx: ctx.shard(numbers().take(0)), 4, DataShardError, "an empty dataset"),
        (lambda: numbers().take(0), 4, DataShardError, "an empty dataset"),
        (lambda: numbers().filter(lambda i: False), 4, DataShardError, "an empty dataset"),
        (lambda ctx: ctx.shard(numbers()), None, DataShardError,
         "no batch_size: the data set of the function is taken as ready batches"),
        (lambda ctx: ctx.shard(numbers(), 0), 4, ArgumentError, "0"),
    ],
)  # fmt: skip
def test_functions_that_are_refused(function, batch_size, kind, received):
    assert f"Received: {received}" in refusal(kind, make_data, function, worker(2, 0, batch_size))


def test_validation_data_that_never_ends_is_refused():
    message = r"A dataset that never ends needs `validation_steps`\.\n.*`validation_data` that repeats"
    with pytest.raises(ArgumentError, match=message):
        make_data(lambda: numbers().repeat(), worker(), name="validation_data")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("target", [(), (1,)])
def test_examples_are_no_batches(workers, target):
    data = tf.data.Dataset.from_tensors((np.zeros(4), np.zeros(target)))
    for name, size in (("x", "batch_size"), ("validation_data", "validation_batch_size")):
        said = refusal(ArgumentError, make_data, lambda: data, worker(workers, 0, None), name=name)
        assert said[0].startswith(f"Without `{size}`, the dataset of the function `{name}`")
        assert said[1] == f"Received: elements of the shapes (4,), {target}"
    assert make_data(lambda: data.batch(3), worker(workers, 0, None)).steps == 1

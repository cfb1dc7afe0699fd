"""The batches that each worker trains on, from every form of data."""

import logging
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
import tensorflow as tf

import tfdistr
from tfdistr.data.order.context import WorkerContext
from tfdistr.data.pipeline import worker_data
from tfdistr.data.pipeline.worker_data import make_data
from tfdistr.data.source import make_source
from tfdistr.errors import ArgumentError, DataShardError

X = np.arange(26.0).reshape(13, 2)
Y = np.arange(13)


def worker(
    num_workers: int = 1, index: int = 0, batch_size: int | None = 4, shuffle: bool = True
) -> WorkerContext:
    return WorkerContext(num_workers, index, batch_size, seed=3, shuffle=shuffle)


def unknown(*_) -> tf.data.Dataset:
    """The numbers of ``Y``, as a dataset that does not know how many it has, and has no index."""
    return tf.data.Dataset.range(13).filter(lambda i: True)


def flat(lists: Iterable[list]) -> list:
    return [value for values in lists for value in values]


def ids(source, context: WorkerContext, passes: int = 1, key=lambda batch: batch) -> list[list[int]]:
    """What each batch of a worker holds, over some passes."""
    data = make_data(source, context)
    if data.steps:
        batches = list(data.dataset.take(passes * data.steps))
    else:
        batches = [batch for _ in range(passes) for batch in data.dataset]
    return [key(batch).numpy().tolist() for batch in batches]


def whole(
    source, workers: int, passes: int = 2, batch_size: int | None = 4, shuffle: bool = True, **more
) -> list:
    """The global batches: the workers' parts of each step, one after the other."""
    parts = [ids(source, worker(workers, i, batch_size, shuffle), passes, **more) for i in range(workers)]
    assert len({len(part) for part in parts}) == 1, "all workers make the same number of steps"
    return [flat(rows) for rows in zip(*parts, strict=True)]


def test_arrays():
    source = make_source(Y)
    batches = whole(source, 3)
    assert [len(batch) for batch in batches] == [4, 4, 4, 1] * 2
    assert sorted(flat(batches[:4])) == sorted(flat(batches[4:])) == Y.tolist()
    assert batches == whole(source, 1)
    assert batches[:4] != batches[4:]


@pytest.mark.parametrize(
    "x", [X, X.astype("float32"), Y.astype("int8"), Y.astype(str), (X, Y), {"b": X, "a": {"c": Y}}],
    ids=["float64", "float32", "int8", "text", "tuple", "dictionary"],
)  # fmt: skip
def test_the_types_of_arrays_are_known_before_their_dataset_is_made(x):
    data = make_data(make_source(x, Y, np.ones(13)), worker(2))
    known = data.element_spec
    assert "dataset" not in vars(data)
    assert known == data.dataset.element_spec


def test_arrays_without_shuffle():
    batches = whole(make_source(Y), 2, 1, shuffle=False)
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12]]


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


def test_steps_are_those_of_a_pass_unless_they_are_given():
    assert make_data(make_source(Y), worker()).steps == 4
    assert make_data(make_source(Y), worker(), 7).steps == 7


def test_a_description_is_read_by_index():
    digits = tfdistr.load_dataset("digits", "test")
    data = make_data(digits, worker(2, 1, 100))
    assert data.steps == 4
    x, y = next(iter(data.dataset))
    assert x.shape == (50, 8, 8, 1)
    assert y.shape == (50,)
    (batch,) = make_data(tfdistr.load_dataset("digits", supervised=False), worker()).dataset.take(1)
    assert sorted(batch) == ["image", "label"]


def test_a_description_that_does_not_fit_into_memory_is_read_example_by_example(monkeypatch):
    monkeypatch.setattr(tfdistr.data.datasets.Dataset, "fits_in_memory", lambda self: False)
    digits = tfdistr.load_dataset("digits", "test", supervised=False)
    labels = flat(whole(digits, 3, 1, 100, key=lambda batch: batch["label"]))
    assert Counter(labels) == Counter(digits.arrays()["label"].tolist())


def numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(13)


FUNCTIONS = {"numbers": numbers, "with a context": lambda ctx: numbers(), "unknown": lambda *_: unknown()}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_examples(name):
    function = FUNCTIONS[name]
    batches = whole(function, 3)
    assert [len(batch) for batch in batches] == [4, 4, 4, 1] * 2
    assert sorted(flat(batches[:4])) == sorted(flat(batches[4:])) == Y.tolist()
    assert batches == whole(function, 1)


def test_functions_of_examples_without_shuffle():
    assert whole(numbers, 2, 1, shuffle=False) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12]]


def test_a_stream_that_is_too_long_for_memory_is_shuffled_in_part(monkeypatch):
    monkeypatch.setattr(worker_data, "SHUFFLE_BUFFER", 5)
    (first,) = {whole(unknown, workers, 1)[0][0] for workers in (1, 2)}
    assert first < 5
    assert sorted(flat(whole(unknown, 2, 1))) == Y.tolist()


@pytest.mark.parametrize("seed", [0, 5])
def test_the_order_does_not_depend_on_a_seed_that_a_model_function_sets(seed):
    expected = whole(unknown, 2, 1)
    try:
        tf.random.set_seed(seed)
        assert whole(unknown, 2, 1) == expected
    finally:
        tf.random.set_seed(None)


def test_functions_of_batches_are_taken_as_they_are():
    batches = whole(lambda ctx: numbers().batch(5), 3, batch_size=None)
    assert batches == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12]] * 2


def test_the_data_repeats_as_often_as_the_steps_need():
    data = make_data(numbers, worker(), 6)
    batches = [batch.numpy().tolist() for batch in data.dataset.take(8)]
    assert data.steps == 6
    assert sorted(flat(batches[:4])) == sorted(flat(batches[4:])) == Y.tolist()


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


@pytest.mark.parametrize(("examples", "batch_size", "workers"), [(13, 4, 3), (1, 4, 3)])
def test_shard_uses_every_example_once_and_keeps_the_batches(examples, batch_size, workers):
    def function(ctx):
        return ctx.shard(tf.data.Dataset.range(examples)).map(lambda i: i * 10)

    batches = whole(function, workers, 2, batch_size)
    steps = -(-examples // batch_size)
    assert len(batches) == 2 * steps
    for number in range(2):
        assert sorted(flat(batches[number * steps : (number + 1) * steps])) == [
            10 * i for i in range(examples)
        ]
    assert batches == whole(function, 1, 2, batch_size)


def test_shard_may_shuffle_over_less_than_everything():
    batches = whole(lambda ctx: ctx.shard(unknown(), shuffle_buffer=2), 2, 1)
    assert batches[0][0] in (0, 1)
    assert sorted(flat(batches)) == Y.tolist()


def test_shard_counts_examples_whose_number_is_not_known(caplog):
    with caplog.at_level(logging.INFO, logger="tfdistr"):
        batches = whole(lambda ctx: ctx.shard(unknown()), 2, 1)
    assert sorted(flat(batches)) == Y.tolist()
    assert "counting the examples once" in caplog.text


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
    ("function", "batch_size", "kind", "lines"),
    [
        (lambda: [1, 2], 4, ArgumentError, [
            "The function `x` must return a tf.data.Dataset, a PyDataset or a generator of batches.",
            "Received: a function that returned a list of length 2",
            "Fix: For example tf.data.Dataset.from_tensor_slices((inputs, targets))."]),
        (lambda: numbers().repeat(), 4, ArgumentError, [
            "A dataset that never ends needs `steps_per_epoch`.",
            "Received: a dataset of the function `x` that repeats forever",
            "Fix: Leave repeat() out, or pass steps_per_epoch."]),
        (lambda ctx: ctx.shard(numbers().repeat()), 4, DataShardError, [
            "ctx.shard() needs a finite dataset.", "Received: a dataset that repeats forever",
            "Fix: Leave repeat() out; distributed_fit() repeats the data as steps_per_epoch requires."]),
        (lambda ctx: ctx.shard(numbers().take(0)), 4, DataShardError, [
            "ctx.shard() needs at least one example.", "Received: an empty dataset",
            "Fix: Check the data that the function reads."]),
        (lambda ctx: ctx.shard(numbers()), None, DataShardError, [
            "ctx.shard() splits examples by global batches, so it needs a batch size.",
            "Received: no batch_size: the data set of the function is taken as ready batches",
            "Fix: Pass batch_size to distributed_fit() and return examples, not batches."]),
        (lambda ctx: ctx.shard(numbers(), 0), 4, ArgumentError, [
            "`shuffle_buffer` must be a whole number of at least 1.", "Received: 0",
            "Fix: Pass shuffle_buffer=1, for example."]),
    ],
)  # fmt: skip
def test_functions_that_are_refused(function, batch_size, kind, lines):
    with pytest.raises(kind) as caught:
        make_data(function, worker(2, 0, batch_size))
    assert str(caught.value).splitlines() == lines


def test_validation_data_that_never_ends_is_refused():
    message = r"A dataset that never ends needs `validation_steps`\.\n.*`validation_data` that repeats"
    with pytest.raises(ArgumentError, match=message):
        make_data(lambda: numbers().repeat(), worker(), name="validation_data")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("target", [(), (1,)])
def test_examples_are_no_batches(workers, target):
    data = tf.data.Dataset.from_tensors((np.zeros(4), np.zeros(target)))
    with pytest.raises(ArgumentError) as caught:
        make_data(lambda: data, worker(workers, 0, None), name="validation_data")
    assert str(caught.value).splitlines() == [
        "Without `validation_batch_size`, the dataset of the function `validation_data` must have batches.",
        f"Received: elements of the shapes (4,), {target}",
        "Fix: Pass validation_batch_size=32, for example, or call dataset.batch(32) in the function.",
    ]
    assert make_data(lambda: data.batch(3), worker(workers, 0, None)).steps == 1

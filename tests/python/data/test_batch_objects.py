"""Datasets, PyDatasets and generators as ``x``: they train as the same arrays, here and on workers."""

import itertools
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from nested import assert_same
from refusals import refusal
from slow import mostly_slow

import tfdistr
from tfdistr import tf_internals
from tfdistr.data.order.context import WorkerContext
from tfdistr.data.pipeline.batch_objects import GivenBatches, GivenDataset
from tfdistr.data.pipeline.worker_data import make_data
from tfdistr.errors import ArgumentError, DataShardError, TfdistrError
from tfdistr.training.job_data import check_alike

pytestmark = pytest.mark.timeout(240)

SIZE = 8
rng = np.random.default_rng(0)
X = rng.normal(size=(44, 5)).astype("float32")
Y = rng.integers(0, 3, 44)
JOB = {"epochs": 2, "seed": 1, "shuffle": False, "verbose": 0}


def model() -> keras.Model:
    made = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(3, "softmax")])
    made.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made


class Slices(keras.utils.PyDataset):
    """Batches by their number; notes how it is used."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.calls: list[Any] = []

    def __len__(self) -> int:
        return math.ceil(len(X) / SIZE)

    def __getitem__(self, number: int) -> Any:
        self.calls.append(number)
        return X[number * SIZE : (number + 1) * SIZE], Y[number * SIZE : (number + 1) * SIZE]

    def on_epoch_end(self) -> None:
        self.calls.append("end")


def slices() -> Iterator[Any]:
    for first in range(0, len(X), SIZE):
        yield X[first : first + SIZE], Y[first : first + SIZE]


def endless() -> Iterator[Any]:
    while True:
        yield from slices()


def examples() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y))


#: The objects, each made anew.
OBJECTS: dict[str, Callable[[], Any]] = {
    "examples": examples,
    "batches": lambda: examples().batch(SIZE).map(lambda x, y: (x, y)).prefetch(2),
    "PyDataset": Slices,
    "PyDataset with threads": lambda: Slices(workers=3, max_queue_size=2),
    "generator function": lambda: slices,
    "function of a PyDataset": lambda: lambda: Slices(workers=1),
}


def same(fit: tfdistr.FitResult, other: tfdistr.FitResult, atol: float = 0.0) -> None:
    for mine, theirs in zip(fit.model.get_weights(), other.model.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=atol)
    for name, values in other.history.items():
        assert fit.history[name] == pytest.approx(values, abs=atol)


@pytest.fixture(scope="module")
def of_arrays() -> tfdistr.FitResult:
    return tfdistr.distributed_fit(model, X, Y, batch_size=SIZE, validation_data=(X, Y), **JOB)


def size_of(name: str) -> dict[str, int]:
    return {"batch_size": SIZE} if name == "examples" else {}


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_trains_as_its_arrays(of_arrays, name):
    data = OBJECTS[name]
    fit = tfdistr.distributed_fit(model, data(), validation_data=data(), **JOB, **size_of(name))
    same(fit, of_arrays)
    np.testing.assert_array_equal(fit.predict(data(), **size_of(name)), of_arrays.predict(X, batch_size=SIZE))


# Slow: trains on two workers.
@pytest.mark.parametrize("name", mostly_slow(["generator function", "batches"], quick=["generator function"]))
def test_an_object_is_sent_to_workers(of_arrays, name):
    cluster, data = tfdistr.local_cluster(workers=2), OBJECTS[name]
    fit = tfdistr.distributed_fit(
        model, data(), validation_data=data(), cluster=cluster, **JOB, **size_of(name)
    )
    same(fit, of_arrays, atol=1e-6)
    np.testing.assert_array_equal(
        fit.predict(data(), cluster=cluster, **size_of(name)), fit.predict(X, batch_size=SIZE)
    )


def test_a_generator_object_is_read_once(of_arrays):
    fit = tfdistr.distributed_fit(
        model, endless(), steps_per_epoch=6, validation_data=endless(), validation_steps=6, **JOB
    )
    same(fit, of_arrays)


def test_an_epoch_of_unknown_length_ends_with_the_generator(of_arrays):
    passes = [slices(), slices()]

    def one_pass() -> Iterator[Any]:
        return passes.pop()

    fit = tfdistr.distributed_fit(model, one_pass, validation_data=(X, Y), **JOB)
    assert passes == []
    assert fit.history["loss"] == pytest.approx(of_arrays.history["loss"])


def test_batches_of_a_pydataset_have_an_order_in_each_epoch():
    data = Slices()
    tfdistr.distributed_fit(model, data, **JOB | {"shuffle": True, "epochs": 3})
    ends = [place for place, call in enumerate(data.calls) if call == "end"]
    first, second = data.calls[: ends[0]], data.calls[ends[0] + 1 : ends[1]]
    assert sorted(first) == sorted(second) == list(range(6))
    assert first != second
    again = Slices()
    tfdistr.distributed_fit(model, again, **JOB | {"shuffle": True, "epochs": 3})
    assert again.calls == data.calls


def test_batches_of_a_pydataset_begin_at_any_step():
    context = WorkerContext(num_workers=1, index=0, global_batch_size=None, seed=3)

    def batches(start: int, count: int) -> list[Any]:
        return list(itertools.islice(make_data(Slices, context, start=start).dataset, count))

    assert_same(batches(8, 6), batches(0, 14)[8:])


def test_batches_may_differ_in_their_shapes():
    def texts() -> Iterator[Any]:
        for length in (3, 5, 7, 3):
            yield np.ones((4, length, 2)), np.zeros((4, 1))

    context = WorkerContext(num_workers=1, index=0, global_batch_size=None)
    data = make_data(texts, context)
    assert [spec.shape.as_list() for spec in data.element_spec] == [[None, None, 2], [None, 1]]
    assert [x.shape[1] for x, _ in data.dataset] == [3, 5, 7, 3]


@pytest.mark.parametrize(
    ("pipeline", "found"),
    [
        (lambda: examples().map(lambda x, y: (x + 1, y)), []),
        (lambda: examples().map(lambda x, y: tf.numpy_function(np.sum, [x], tf.float32)), ["numpy_function"]),
        (lambda: examples().map(lambda x, y: tf.py_function(np.sum, [x], tf.float32)), ["py_function"]),
        (lambda: tf.data.Dataset.from_generator(slices, (tf.float32, tf.int64)).batch(2), ["from_generator"]),
    ],
)
def test_python_code_is_found_in_a_pipeline(pipeline, found):
    assert tf_internals.python_ops(pipeline()) == found


def test_a_shuffle_goes_on_where_it_was_on_workers(tmp_path, caplog):
    def data() -> tf.data.Dataset:
        return examples().shuffle(44, seed=3).batch(SIZE)

    here = tfdistr.distributed_fit(model, data(), **JOB)
    sent = pickle.loads(pickle.dumps(GivenDataset(data(), "x")))
    same(tfdistr.distributed_fit(model, sent, batch_size=None, **JOB), here)
    settings = JOB | {"checkpoint_every": "epoch", "run_dir": tmp_path / "run", "batch_size": None}
    tfdistr.distributed_fit(model, sent, **settings | {"epochs": 1})
    tfdistr.distributed_fit(model, sent, **settings, resume=True)
    assert "has its own shuffle(), so it may resume in another order" in caplog.text


def test_several_workers_must_know_the_number_of_batches():
    context = WorkerContext(num_workers=2, index=0, global_batch_size=None)
    for name, argument in (("x", "steps_per_epoch"), ("validation_data", "validation_steps")):
        assert f"Received: `{name}` yields batches one after the other, and {argument} is not set" in refusal(
            ArgumentError, make_data, GivenBatches(slices(), name), context, name=name
        )
    assert make_data(slices, context).steps == 6


@pytest.mark.parametrize("source", [slices, Slices])
@pytest.mark.parametrize("place", [{}, {"virtual_workers": (range(2, 4), 4)}], ids=["one", "virtual"])
def test_a_look_gives_the_rows_of_this_worker(source, place):
    context = WorkerContext(num_workers=2, index=1, global_batch_size=None, shuffle=False, **place)
    data = make_data(source, context)
    x, y = data.look()
    np.testing.assert_array_equal(x, X[SIZE // 2 : SIZE])
    np.testing.assert_array_equal(y, Y[SIZE // 2 : SIZE])
    first, _ = next(iter(data.dataset))  # the training still begins there
    np.testing.assert_array_equal(first, x)


def test_a_table_goes_along_with_a_pipeline():
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)), -1
    )
    data = tf.data.Dataset.from_tensor_slices(["a", "b", "c"]).map(table.lookup)
    given = GivenDataset(data, "x")
    context = WorkerContext(num_workers=2, index=0, global_batch_size=None)
    assert [int(value) for value in pickle.loads(pickle.dumps(given))(context)] == [1, 2, -1]


class NoLength(keras.utils.PyDataset):
    def __getitem__(self, number: int) -> Any:
        return X[:4], Y[:4]


class Empty(NoLength):
    def __len__(self) -> int:
        return 0


def python_in(x: Any, y: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(lambda value: value, [x], tf.float32), [5]), y


def flipped() -> tf.data.Dataset:
    flip = keras.layers.RandomFlip(seed=1)
    images = tf.data.Dataset.from_tensor_slices(np.zeros([8, 2, 2, 1], "float32"))
    return images.map(lambda image: flip(image, training=True))


REFUSED = [
    ("a generator for workers", endless, {"steps_per_epoch": 6, "cluster": 2}, "a generator"),
    ("no length", NoLength, {}, "NoLength without a length"),
    ("no batches", Empty, {}, "0 batches"),
    ("Python in the pipeline", lambda: examples().map(python_in), {"cluster": 2},
     "a pipeline with numpy_function"),
    ("a Keras layer in the pipeline", flipped, {"cluster": 2},
     "a variable (ReadVariableOp), as Keras layers with random numbers have, such as RandomFlip"),
    ("random numbers in the pipeline", lambda: examples().map(lambda x, y: (x + tf.random.uniform([]), y)),
     {"cluster": 2}, "random numbers (RandomUniform)"),
    ("shards that TensorFlow is to fill in", lambda: examples().shard(-1, -1), {"cluster": 2},
     "a dataset whose shards TensorFlow is to fill in"),
    ("a generator at its end", slices, {}, "an exhausted generator"),
    ("two sizes", Slices, {"batch_size": 64}, "batch_size=64, and batches"),
    ("targets", Slices, {"y": Y}, "`y`, where `x` is no array"),
    ("a part of a dataset", examples, {"validation_split": 0.2}, "a function"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "arguments", "received"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_is_refused(make, arguments, received):
    if "cluster" in arguments:
        arguments = arguments | {"cluster": tfdistr.local_cluster(arguments["cluster"])}
    said = refusal(TfdistrError, tfdistr.distributed_fit, model, make(), **JOB | arguments)
    assert said[1].startswith(f"Received: {received}")


def unseeded_generator() -> Iterator[Any]:
    rows = np.random.default_rng().permutation(44)
    yield from ((X[rows[:SIZE]], Y[rows[:SIZE]]) for _ in range(3))


def seeded_generator() -> Iterator[Any]:
    rows = np.random.permutation(44)  # whose seed is that of the job
    yield from ((X[rows[:SIZE]], Y[rows[:SIZE]]) for _ in range(3))


def test_random_numbers_that_differ_between_workers_are_refused():
    cluster = tfdistr.local_cluster(2)
    same(
        tfdistr.distributed_fit(model, seeded_generator, cluster=cluster, **JOB),
        tfdistr.distributed_fit(model, seeded_generator, **JOB),
        atol=1e-6,
    )
    with pytest.raises(TfdistrError, match="`x` must yield the same batches on all workers") as caught:
        tfdistr.distributed_fit(model, unseeded_generator, cluster=cluster, **JOB)
    assert "Received: first batches that differ between worker 0 and worker 1" in str(caught.value)


def test_batches_that_differ_by_rounding_are_the_same():
    check_alike([[0.5, 3.0, float("nan")], [0.5000001, 3.0, float("nan")]], "x")
    for other in ([0.5], [0.5, 3.1, float("nan")]):
        with pytest.raises(DataShardError):
            check_alike([[0.5, 3.0, float("nan")], other], "x")


def test_a_loop_of_its_own_cannot_read_batches():
    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(3, "softmax")

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

        def fit(self, *args: Any, **kwargs: Any) -> Any:
            return super().fit(*args, **kwargs)

    def build() -> keras.Model:
        made = Own()
        made.compile("sgd", "sparse_categorical_crossentropy")
        return made

    fit = tfdistr.distributed_fit(build, X, Y, **JOB)
    for call in (lambda: tfdistr.distributed_fit(build, Slices(), **JOB), lambda: fit.evaluate(Slices())):
        assert "Received: a model with its own loop, or several devices" in refusal(ArgumentError, call)


def batches_on(workers: int, given: GivenDataset, seed: int = 1) -> list[list[int]]:
    """What each of two passes reads on all workers together, each of which gets the dataset."""
    read = []
    for index in range(workers):
        context = WorkerContext(num_workers=workers, index=index, global_batch_size=None, seed=seed)
        sent = pickle.loads(pickle.dumps(given)) if workers > 1 else given
        data = make_data(sent, context)
        read.append([rows.numpy().tolist() for rows in data.dataset.take(2 * data.steps)])
    return [list(itertools.chain(*rows)) for rows in zip(*read, strict=True)]


def unseeded(make: Callable[[], tf.data.Dataset]) -> GivenDataset:
    seed = tf_internals.global_seed()
    tf.random.set_seed(None)
    try:
        return GivenDataset(make(), "x")
    finally:
        tf.random.set_seed(seed)


def two_sources() -> tf.data.Dataset:
    sources = [tf.data.Dataset.range(4), tf.data.Dataset.range(4, 12).shuffle(8)]
    sampled = tf.data.Dataset.sample_from_datasets(sources, rerandomize_each_iteration=True)
    return sampled.batch(4).apply(tf.data.experimental.assert_cardinality(3))


UNSEEDED = {
    "shuffle()": lambda: tf.data.Dataset.range(12).shuffle(12).batch(4),
    "sample_from_datasets() or random() and shuffle()": two_sources,
}


@pytest.mark.parametrize("parts", UNSEEDED)
def test_what_is_random_without_a_seed_gets_the_seed_of_the_job(parts, caplog):
    given = unseeded(UNSEEDED[parts])
    one = batches_on(1, given)
    assert batches_on(2, given) == one == batches_on(1, unseeded(UNSEEDED[parts]))
    assert batches_on(1, given, seed=2) != one
    first, second = list(itertools.chain(*one[:3])), list(itertools.chain(*one[3:]))
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    assert f"`x`: {parts} without a seed gets the seed of the job." in caplog.messages


def test_two_shuffles_without_a_seed_have_different_orders():
    def both() -> tf.data.Dataset:
        return tf.data.Dataset.zip(tuple(tf.data.Dataset.range(12).shuffle(12) for _ in range(2)))

    context = WorkerContext(num_workers=1, index=0, global_batch_size=None)
    pairs = [(int(a), int(b)) for a, b in unseeded(both)(context)]
    assert [a for a, _ in pairs] != [b for _, b in pairs]


def test_workers_share_no_cache_file(tmp_path):
    given = GivenDataset(tf.data.Dataset.range(12).cache(str(tmp_path / "cache")).batch(4), "x")
    expected = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]] * 2
    assert batches_on(2, given) == expected
    assert {path.name for path in tmp_path.glob("*.index")} == {"cache.index", "cache.worker-1.index"}


@pytest.mark.parametrize("size", [None, 4])
def test_workers_share_no_cache_file_of_a_function(tmp_path, size):
    def cached() -> tf.data.Dataset:
        kept = tf.data.Dataset.range(12).filter(lambda number: number >= 0)  # its number is counted
        examples = kept.cache(str(tmp_path / "cache"))
        return examples.batch(4) if size is None else examples

    read = []
    for index in range(2):
        context = WorkerContext(num_workers=2, index=index, global_batch_size=size, shuffle=False)
        read.append([rows.numpy().tolist() for rows in make_data(cached, context).dataset.take(3)])
    assert read == [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]]
    assert {path.name for path in tmp_path.glob("*.index")} == {"cache.index", "cache.worker-1.index"}

"""A ``tf.data.Dataset`` as ``x``: the seeds of its random parts, and the files of its caches."""

import itertools
import pickle
from collections.abc import Callable

import pytest
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.data.order.context import WorkerContext
from tfdistr.data.pipeline.batch_objects import GivenDataset
from tfdistr.data.pipeline.worker_data import make_data


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

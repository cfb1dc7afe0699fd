"""How a dataset is split over the workers: the policy chosen, what is read, and the rows of each worker."""

import itertools
import logging
import os

import numpy as np
import pytest
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.data.order import shard
from tfdistr.data.order.shard import (
    Policy,
    auto_shard,
    check_files,
    choose_policy,
    distribute_batches,
    is_share,
    leave_to_tensorflow,
    mark_share,
)
from tfdistr.errors import ArgumentError, DataShardError


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    """Four TFRecord files, which hold 0 to 9, 10 to 19 and so on."""
    folder = tmp_path_factory.mktemp("files")
    paths = [str(folder / f"part-{number}.tfrecord") for number in range(4)]
    for number, path in enumerate(paths):
        with tf.io.TFRecordWriter(path) as writer:
            for i in range(10 * number, 10 * number + 10):
                writer.write(str(i).encode())
    return paths


@pytest.mark.parametrize(
    ("files", "workers", "exact", "policy", "reason"),
    [
        (0, 1, True, "OFF", "one worker has all the data"),
        (4, 1, False, "OFF", "one worker has all the data"),
        (0, 4, True, "DATA", "the pipeline reads no files"),
        (0, 4, False, "DATA", "the pipeline reads no files"),
        (1, 4, True, "DATA", "1 file cannot be shared out to 4 workers"),
        (1, 4, False, "DATA", "1 file cannot be shared out to 4 workers"),
        (5, 3, False, "DATA", "5 files would be shared out unevenly to 3 workers"),
        (4, 2, True, "DATA", "it keeps the batches of one worker; exact=False would share out 4 files"),
        (4, 2, False, "FILE", "each worker reads 2 files of its own"),
        (2, 2, False, "FILE", "each worker reads 1 file of its own"),
    ],
)
def test_the_policy_and_its_reason(files, workers, exact, policy, reason):
    assert choose_policy(files, workers, exact) == (Policy[policy], reason)


def test_the_choice_is_set_and_logged_once(files, caplog):
    with caplog.at_level(logging.INFO, logger="tfdistr"):
        dataset = auto_shard(tf.data.TFRecordDataset(files[:1]).batch(4), num_workers=4)
    assert policy_of(dataset) is Policy.DATA
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == (
        "auto_shard: policy DATA for 4 workers: 1 file cannot be shared out to 4 workers"
    )


def test_the_split_of_a_dataset_is_logged_with_its_reason(files, caplog):
    with caplog.at_level(logging.INFO, logger="tfdistr"):
        distribute_batches(tf.data.TFRecordDataset(files[:1]).batch(4), 4, 0)
    (record,) = caplog.records
    assert record.getMessage() == (
        "Each of 4 workers takes its rows of every global batch: 1 file cannot be shared out to 4 workers"
    )


def test_files_are_shared_out_where_that_was_asked_for(files):
    dataset = tf.data.TFRecordDataset(files)
    assert policy_of(auto_shard(dataset, 2, exact=False)) is Policy.FILE
    assert policy_of(auto_shard(dataset, 2.0)) is Policy.DATA


@pytest.mark.parametrize("policy", ["file", "data", "hint", "off"])
def test_a_policy_that_was_asked_for_is_set(files, policy, caplog):
    with caplog.at_level(logging.INFO, logger="tfdistr"):
        dataset = auto_shard(tf.data.TFRecordDataset(files), 2, policy)
    assert policy_of(dataset) is Policy[policy.upper()]
    assert not caplog.records


def test_the_number_of_workers_is_that_of_the_strategy():
    dataset = tf.data.Dataset.range(3)
    assert policy_of(auto_shard(dataset)) is Policy.OFF
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        assert policy_of(auto_shard(dataset)) is Policy.OFF


def test_the_number_of_workers_of_a_strategy_that_is_not_ours(monkeypatch):
    class Stock:
        num_replicas_in_sync = 3

    monkeypatch.setattr(tf.distribute, "get_strategy", Stock)
    assert policy_of(auto_shard(tf.data.Dataset.range(3))) is Policy.DATA


def policy_of(dataset: tf.data.Dataset):
    return dataset.options().experimental_distribute.auto_shard_policy


def test_file_with_too_few_files_is_refused_with_both_numbers(files):
    with pytest.raises(DataShardError) as caught:
        auto_shard(tf.data.TFRecordDataset(files[:1]), 4, "file")
    assert str(caught.value).splitlines() == [
        "The auto-shard policy FILE needs at least one file for each worker.",
        "Received: 1 file, 4 workers",
        "Fix: Use tfdistr.auto_shard(dataset), or write the data to at least as many files as workers.",
    ]
    check_files(4, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2],), "`dataset` must be a tf.data.Dataset.\nReceived: a list of length 2\nFix: Make one, "),
        ((None, 0), "`num_workers` must be a whole number of at least 1.\nReceived: 0"),
        (
            (None, 2, "FILE"),
            "`policy` must be one of 'auto', 'file', 'data', 'hint', 'off'.\nReceived: 'FILE'",
        ),
        ((None, 2, "auto", "no"), "`exact` must be true or false.\nReceived: 'no'"),
    ],
)
def test_arguments_of_auto_shard(arguments, message):
    dataset, *others = arguments
    with pytest.raises(ArgumentError) as caught:
        auto_shard(tf.data.Dataset.range(3) if dataset is None else dataset, *others)
    assert str(caught.value).startswith(message)


def parse(record: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_number(record, tf.int64)


PIPELINES = {
    "arrays": (0, lambda files: tf.data.Dataset.from_tensor_slices(np.zeros((8, 2)))),
    "four files": (4, lambda files: tf.data.TFRecordDataset(files).map(parse).shuffle(9).batch(2).repeat()),
    "names, read in a map": (4, lambda files: tf.data.Dataset.from_tensor_slices(files).map(tf.io.read_file)),
    "names, read one after the other": (
        4,
        lambda files: tf.data.Dataset.from_tensor_slices(files).flat_map(tf.data.TextLineDataset),
    ),
    "listed": (
        4,
        lambda files: tf.data.Dataset.list_files(
            os.path.join(os.path.dirname(files[0]), "*.tfrecord"), seed=1
        ).interleave(tf.data.TFRecordDataset),
    ),
    "a dataset of names": (
        2,
        lambda files: tf.data.TFRecordDataset(tf.data.Dataset.from_tensor_slices(files[:2])),
    ),
    "lines": (3, lambda files: tf.data.TextLineDataset(files[:3]).map(tf.strings.length)),
    "fixed length": (2, lambda files: tf.data.FixedLengthRecordDataset(files[:2], 4)),
    "two sources": (
        2,
        lambda files: tf.data.Dataset.zip(
            tf.data.TFRecordDataset(files[0]), tf.data.TFRecordDataset(files[1])
        ),
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_the_files_of_a_pipeline_are_counted(name, files):
    count, make = PIPELINES[name]
    assert tf_internals.source_files(make(files)) == count


def shares(dataset: tf.data.Dataset, workers: int) -> list[list]:
    return [list(distribute_batches(dataset, workers, index)) for index in range(workers)]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("examples", [1, 3, 12, 13])
def test_the_workers_rows_make_the_batch(examples, workers):
    def batches() -> tf.data.Dataset:  # each worker makes its own
        return tf.data.Dataset.range(examples).shuffle(20, seed=3).batch(4)

    parts = [list(distribute_batches(batches(), workers, index)) for index in range(workers)]
    for step, batch in enumerate(batches()):
        rows = [part[step].numpy() for part in parts]
        assert np.concatenate(rows).tolist() == batch.numpy().tolist()
        assert max(map(len, rows)) - min(map(len, rows)) <= 1
    assert {len(part) for part in parts} == {-(-examples // 4)}


def test_nested_ragged_and_sparse_elements():
    rows = tf.ragged.constant([[1], [2, 3], [], [4, 5, 6], [7]])
    sparse = tf.sparse.from_dense(np.diag(np.arange(1, 6)))
    elements = {"dense": tf.range(5), "ragged": rows, "sparse": sparse}, tf.constant(list("abcde"))
    dataset = tf.data.Dataset.from_tensor_slices(elements).batch(5)
    parts = [part[0] for part in shares(dataset, 2)]
    assert [x["dense"].numpy().tolist() for x, _ in parts] == [[0, 1], [2, 3, 4]]
    assert [x["ragged"].to_list() for x, _ in parts] == [[[1], [2, 3]], [[], [4, 5, 6], [7]]]
    dense = [tf.sparse.to_dense(x["sparse"]).numpy() for x, _ in parts]
    assert [part.shape for part in dense] == [(2, 5), (3, 5)]
    assert np.concatenate(dense).tolist() == np.diag(np.arange(1, 6)).tolist()
    assert [b"".join(y.numpy()) for _, y in parts] == [b"ab", b"cde"]


@pytest.fixture
def without_global_seed():
    seed = tf_internals.global_seed()
    tf.random.set_seed(None)
    yield
    tf.random.set_seed(seed)


@pytest.mark.usefixtures("without_global_seed")
def test_an_order_that_differs_from_worker_to_worker_is_refused():
    dataset = tf.data.Dataset.range(8)
    for shuffled in (unseeded(dataset).batch(2), unseeded(dataset).map(lambda x: x + 1).batch(2).repeat()):
        with pytest.raises(DataShardError) as caught:
            distribute_batches(shuffled, 2, 0)
        assert str(caught.value).splitlines() == [
            "A dataset that is split over several workers must be in the same order on all of them.",
            "Received: shuffle() without a seed, made before the strategy",
            "Fix: Pass seed=1 to it, or make the dataset after the strategy.",
        ]
    assert distribute_batches(unseeded(dataset).batch(2), 1, 0).cardinality() == 4


def test_what_is_random_without_a_seed_gets_the_common_seed(caplog):
    dataset = unseeded(tf.data.Dataset.range(8)).batch(2)
    seed = tf_internals.global_seed()
    tf.random.set_seed(5)
    try:
        parts = [[rows.numpy().tolist() for rows in share] for share in shares(dataset, 2)]
    finally:
        tf.random.set_seed(seed)
    assert sorted(itertools.chain(*parts[0], *parts[1])) == list(range(8))
    assert caplog.messages.count("shuffle() without a seed gets the common seed of the workers.") == 1


def test_each_worker_has_a_cache_file_of_its_own(tmp_path):
    dataset = tf.data.Dataset.range(8).cache(str(tmp_path / "cache")).batch(2)
    first, second = (iter(distribute_batches(dataset, 2, index)) for index in range(2))  # both are writing
    assert [int(rows[0]) for pair in zip(first, second, strict=True) for rows in pair] == list(range(8))
    assert {path.name for path in tmp_path.glob("*.index")} == {"cache.index", "cache.worker-1.index"}


def test_a_look_at_the_batches_leaves_cache_files_alone(tmp_path):
    texts = tf.data.Dataset.range(1, 9).map(tf.range).cache(str(tmp_path / "cache")).padded_batch(2)
    assert texts.element_spec.shape.as_list() == [None, None]  # so check_parts() looks at them
    writing = iter(texts)
    next(writing)
    files = set(tmp_path.iterdir())
    distributed = distribute_batches(texts, 2, 0)
    assert set(tmp_path.iterdir()) == files
    assert len(list(writing)) == 3
    assert [rows.shape[1] for rows in distributed] == [2, 4, 6, 8]


def test_a_complete_cache_is_read(tmp_path):
    (tmp_path / "numbers").write_text("1\n2\n")
    cached = tf.data.TextLineDataset(str(tmp_path / "numbers")).cache(str(tmp_path / "cache"))
    assert len(list(cached)) == 2
    (tmp_path / "numbers").unlink()
    assert tf_internals.peek(cached) == b"1"


def test_all_workers_look_at_the_same_batches(monkeypatch):
    seen = []
    monkeypatch.setattr(shard, "check_parts", lambda batches, again: seen.append(tf_internals.peek(batches)))
    dataset = unseeded(tf.data.Dataset.range(8)).batch(8)
    seed = tf_internals.global_seed()
    tf.random.set_seed(5)
    try:
        shares(dataset, 2)
    finally:
        tf.random.set_seed(seed)
    assert seen[0].numpy().tolist() == seen[1].numpy().tolist()


def unseeded(dataset: tf.data.Dataset) -> tf.data.Dataset:
    seed = tf_internals.global_seed()
    tf.random.set_seed(None)
    try:
        return dataset.shuffle(8)
    finally:
        tf.random.set_seed(seed)


def test_elements_that_are_no_batches_are_refused():
    with pytest.raises(DataShardError) as caught:
        distribute_batches(tf.data.Dataset.from_tensor_slices((np.zeros((4, 2)), np.zeros(4))), 2, 0)
    assert caught.value.message == (
        "A dataset that is split over several workers must be batched (with the global batch size)."
    )
    assert caught.value.received.startswith("elements of (TensorSpec(shape=(2,), dtype=tf.float64")
    assert caught.value.fix == "Call dataset.batch(batch_size) before fit()."


def with_policy(dataset: tf.data.Dataset, policy: str) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = Policy[policy]
    return dataset.with_options(options)


def shards(files: list[str]) -> tf.data.Dataset:
    hint = tf.data.experimental.SHARD_HINT
    return with_policy(tf.data.Dataset.from_tensor_slices(files).shard(hint, hint), "HINT")


@pytest.mark.parametrize(
    ("policy", "workers", "left"),
    [("AUTO", 2, False), ("DATA", 2, False), ("FILE", 2, True), ("HINT", 2, False), ("OFF", 2, False),
     ("FILE", 1, False), ("OFF", 1, False)],
)  # fmt: skip
def test_the_policies_that_are_left_to_tensorflow(policy, workers, left, files, caplog):
    dataset = with_policy(tf.data.TFRecordDataset(files), policy)
    assert leave_to_tensorflow(dataset, workers, fits=True) is left
    noted = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    told = f"auto-shard policy {policy}: each worker takes its rows of every global batch, as under DATA."
    assert noted == ([told] if policy in ("HINT", "OFF") and workers == 2 else [])


def test_shards_that_tensorflow_fills_in_are_for_loops_of_ones_own(files):
    assert leave_to_tensorflow(shards(files), 2)
    for refuse in (
        lambda: leave_to_tensorflow(shards(files), 2, fits=True),
        lambda: distribute_batches(shards(files).batch(2), 2, 0),
    ):
        with pytest.raises(DataShardError) as caught:
            refuse()
        assert str(caught.value).splitlines() == [
            "Cannot use shard(SHARD_HINT, SHARD_HINT): its batches have other rows than those of one worker.",
            "Received: a dataset whose shards TensorFlow is to fill in",
            "Fix: Leave this shard() out. Each worker takes its rows of every global batch.",
        ]


def test_a_policy_of_the_user_that_cannot_work_is_refused(files):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = Policy.FILE
    with pytest.raises(DataShardError, match="Received: 1 file, 2 workers"):
        leave_to_tensorflow(tf.data.TFRecordDataset(files[0]).with_options(options), 2)


def test_a_share_stays_one_through_what_is_done_to_it():
    dataset = tf.data.Dataset.range(8)
    assert not is_share(dataset.batch(2))
    assert is_share(mark_share(dataset).map(lambda x: x).batch(2))
    assert is_share(distribute_batches(tf.data.Dataset.range(8).batch(4), 2, 1).prefetch(1))

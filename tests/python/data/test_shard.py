"""How a dataset is split over the workers: the policy chosen, what is read, and the rows of each worker."""

import itertools
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

from tfdistr import tf_internals
from tfdistr.data.order import shard
from tfdistr.data.order.context import WorkerContext
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
from tfdistr.data.pipeline.worker_data import make_data
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


@pytest.mark.parametrize(
    ("split", "message"),
    [(auto_shard, "auto_shard: policy DATA for 4 workers: "),
     (lambda dataset, workers: distribute_batches(dataset, workers, 0),
      "Each of 4 workers takes its rows of every global batch: ")],
)  # fmt: skip
def test_the_choice_is_logged_once_with_its_reason(files, split, message, caplog):
    with caplog.at_level(logging.INFO, logger="tfdistr"):
        split(tf.data.TFRecordDataset(files[:1]).batch(4), 4)
    assert caplog.messages == [message + "1 file cannot be shared out to 4 workers"]


@pytest.mark.parametrize(
    ("arguments", "policy"),
    [((2, "auto", False), "FILE"), ((2.0,), "DATA"), ((2, "file"), "FILE"), ((2, "data"), "DATA"),
     ((2, "hint"), "HINT"), ((2, "off"), "OFF")],
)  # fmt: skip
def test_the_policy_that_is_set(files, arguments, policy, caplog):
    with caplog.at_level(logging.INFO, logger="tfdistr"):
        dataset = auto_shard(tf.data.TFRecordDataset(files), *arguments)
    assert policy_of(dataset) is Policy[policy]
    assert len(caplog.records) == (len(arguments) == 1 or arguments[1] == "auto")


def test_the_number_of_workers_is_that_of_the_strategy(monkeypatch):
    class Stock:
        num_replicas_in_sync = 3

    dataset = tf.data.Dataset.range(3)
    assert policy_of(auto_shard(dataset)) is Policy.OFF
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        assert policy_of(auto_shard(dataset)) is Policy.OFF
    monkeypatch.setattr(tf.distribute, "get_strategy", Stock)
    assert policy_of(auto_shard(dataset)) is Policy.DATA


def policy_of(dataset: tf.data.Dataset):
    return dataset.options().experimental_distribute.auto_shard_policy


def test_file_with_too_few_files_is_refused_with_both_numbers(files):
    assert "Received: 1 file, 4 workers" in refusal(
        DataShardError, auto_shard, tf.data.TFRecordDataset(files[:1]), 4, "file"
    )
    check_files(4, 4)


@pytest.mark.parametrize(
    ("arguments", "received"),
    [({"dataset": [1, 2]}, "a list of length 2"), ({"num_workers": 0}, "0"), ({"policy": "FILE"}, "'FILE'"),
     ({"exact": "no"}, "'no'")],
)  # fmt: skip
def test_arguments_of_auto_shard(arguments, received):
    said = refusal(ArgumentError, auto_shard, **{"dataset": tf.data.Dataset.range(3)} | arguments)
    assert said[0].startswith(f"`{next(iter(arguments))}` must be ")
    assert said[1] == f"Received: {received}"


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
        assert "Received: shuffle() without a seed, made before the strategy" in refusal(
            DataShardError, distribute_batches, shuffled, 2, 0
        )
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
    assert caught.value.received.startswith("elements of (TensorSpec(shape=(2,), dtype=tf.float64")


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
        assert "Received: a dataset whose shards TensorFlow is to fill in" in refusal(DataShardError, refuse)


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


X = np.arange(48, dtype="float32").reshape(16, 3)
Y = X[:, :1]
W = np.array([1, 2, 3], "float32")
BESIDE = "`x['w']`: 3 rows, `x['x']`: 8 rows, `y`: 8 rows"


def examples() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def with_constant(x: Any, y: Any) -> Any:
    return {"x": x, "w": tf.constant(W)}, y


def with_constants() -> Iterator[Any]:
    for first in (0, 8):
        yield {"x": X[first : first + 8], "w": W}, Y[first : first + 8]


def graphs() -> Iterator[Any]:
    for nodes in (5, 7):
        yield (np.ones((nodes, 3)), np.eye(nodes)), np.ones((nodes, 1))


def labeled_graphs() -> Iterator[Any]:
    for x, y in graphs():
        yield x, y[:1]


def dataset_of(generator: Callable[[], Iterator[Any]]) -> tf.data.Dataset:
    types = tf.TensorSpec([None, 3], tf.float64), tf.TensorSpec([None, None], tf.float64)
    return tf.data.Dataset.from_generator(
        generator, output_signature=(types, tf.TensorSpec([None, 1], tf.float64))
    )


REFUSED = {
    "a constant": (lambda: examples().batch(8).map(with_constant), BESIDE),
    "a constant beside known sizes": (
        lambda: examples().batch(8, drop_remainder=True).map(with_constant), BESIDE,
    ),
    "a constant of a generator": (with_constants, BESIDE),
    "graphs of a generator": (graphs, "`x[1]` of the shapes (5, 5) and (7, 7)"),
    "graphs of a dataset": (lambda: dataset_of(graphs), "`x[1]` of the shapes (5, 5) and (7, 7)"),
    "labels of graphs": (labeled_graphs, "`x[0]`: 5 rows, `x[1]`: 5 rows, `y`: 1 rows"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_batches_that_cannot_be_split_are_refused_with_the_part(case):
    make, received = REFUSED[case]
    with pytest.raises(DataShardError) as caught:
        make_data(make, WorkerContext(num_workers=2, index=0, global_batch_size=None))
    assert caught.value.received == received


@pytest.mark.parametrize("case", REFUSED)
def test_one_worker_trains_on_them(case):
    make, _ = REFUSED[case]
    data = make_data(make, WorkerContext(num_workers=1, index=0, global_batch_size=None))
    assert len(list(data.dataset.take(2) if isinstance(data.dataset, tf.data.Dataset) else make())) == 2


def test_a_later_batch_that_cannot_be_split_is_refused():
    def batches() -> Iterator[Any]:
        yield from ((X[:8], Y[:8]), (X[:8], Y[:8]), (X[:8], Y[:3]))

    context = WorkerContext(num_workers=2, index=0, global_batch_size=None)
    fed = iter(make_data(batches, context, steps=3).dataset)
    assert next(fed)[0].shape == next(fed)[0].shape == (4, 3)
    with pytest.raises(DataShardError, match="Received: `x`: 8 rows, `y`: 3 rows"):
        next(fed)

    types = tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec([None, 1], tf.float32)
    split = iter(distribute_batches(tf.data.Dataset.from_generator(batches, output_signature=types), 2, 0))
    assert next(split)[0].shape == next(split)[0].shape == (4, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Received: `y` beside `x`\. Fix: Repeat what"):
        next(split)


def test_square_parts_of_one_size_are_rows():
    images = tf.data.Dataset.from_tensor_slices((np.ones((16, 8)), np.ones((16, 1)))).batch(8)
    unknown = images.map(lambda x, y: (tf.ensure_shape(tf.identity(x), [None, None]), y))
    for batches in (images, unknown):
        assert [x.shape[0] for x, _ in distribute_batches(batches, 2, 0)] == [4, 4]

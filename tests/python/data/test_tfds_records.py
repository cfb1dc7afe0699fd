"""Data sets of TensorFlow Datasets by index: each worker reads and decodes its own examples."""

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from paths import TFDS

import tfdistr
from tfdistr.data import datasets
from tfdistr.data.datasets import Dataset
from tfdistr.data.order.context import WorkerContext
from tfdistr.data.order.shuffle_order import Order
from tfdistr.data.pipeline.worker_data import make_data
from tfdistr.data.readers.record_files import TFRecordFiles
from tfdistr.data.readers.tfds_records import TFRecords
from tfdistr.errors import ArgumentError

EXAMPLES, FILES, BATCH = 43, 3, 8


@pytest.fixture(autouse=True, scope="module")
def _own_temporary_folder(tmp_path_factory):
    """TensorFlow Datasets leaves a folder for each data set that it looks for in vain."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("tfds")))
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    """By file format, a folder with "images": small pictures that tell their label, in several files."""
    import tensorflow_datasets as tfds

    class Images(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(4, 5, 1)),
                "label": np.int64,
                "half": np.float16,
            }
            features = tfds.features.FeaturesDict(features | self.more())
            return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=("image", "label"))

        def more(self):
            return {}

        def _split_generators(self, download):
            return {"train": self._generate_examples(EXAMPLES), "test": self._generate_examples(5)}

        def _generate_examples(self, number):
            for i in range(number):
                words = {"words": ["word"] * (i % 3)} if self.more() else {}
                yield i, {"image": np.full((4, 5, 1), i, np.uint8), "label": i, "half": i / 2} | words

    class Sentences(Images):
        def more(self):
            return {"words": tfds.features.Sequence(tfds.features.Text())}

    made = {}
    for kind, file_format in ((Images, "tfrecord"), (Images, "array_record"), (Sentences, "tfrecord")):
        folder = made.setdefault(file_format, str(tmp_path_factory.mktemp(file_format)))
        config = tfds.download.DownloadConfig(num_shards=FILES)
        builder = kind(data_dir=folder, file_format=file_format)
        builder.download_and_prepare(download_config=config, file_format=file_format)
    return made


def numbers_of(described: Dataset) -> list[int]:
    """The labels in the order in which TensorFlow Datasets reads them."""
    source = described.builder()
    if source.info.file_format.value == "array_record":
        return [int(example["label"]) for example in source.as_data_source(described.split)]
    return [int(label) for _, label in described.dataset()]


def steps_of(described: Dataset, workers: int, steps: int, **more: Any) -> list[list[Any]]:
    """The batches of all workers, step by step."""
    parts = []
    for index in range(workers):
        data = make_data(described, WorkerContext(workers, index, BATCH, **{"seed": 3} | more))
        parts.append(list(data.dataset.take(steps)))
    return list(zip(*parts, strict=True))


@pytest.mark.parametrize(
    ("file_format", "split", "in_memory"),
    [("tfrecord", "train[50%:]+test", False), ("array_record", "train[10:30]", True)],
)
def test_the_global_batches_are_those_of_the_order(folders, file_format, split, in_memory, monkeypatch):
    if not in_memory:
        monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    described = tfdistr.load_dataset("images", split, data_dir=folders[file_format])
    stored = numbers_of(described)
    order = Order(len(stored), BATCH, 3, shuffle=True)
    for workers in (1, 2, 3):
        steps = steps_of(described, workers, 2 * order.batches + 1)
        for number, parts in enumerate(steps):
            indices = order.indices(tf.constant(number, tf.int64)).numpy()
            expected = [stored[i] for i in indices]
            assert [int(i) for _, labels in parts for i in labels] == expected
            images = np.concatenate([image for image, _ in parts])
            np.testing.assert_array_equal(images, np.reshape(expected, (-1, 1, 1, 1)) * np.ones((1, 4, 5, 1)))
            assert images.dtype == np.uint8


@pytest.mark.parametrize(("file_format", "in_memory"), [("tfrecord", True), ("array_record", False)])
def test_each_worker_decodes_its_own_examples(folders, file_format, in_memory, monkeypatch):
    workers = 2
    if not in_memory:
        monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    decode, calls = Dataset.decode, []

    def counted(self, record):
        example = decode(self, record)
        note = tf.numpy_function(lambda i: calls.append(int(i)) or i, [example[1]], tf.int64)
        note.set_shape([])
        return example[0], note

    monkeypatch.setattr(Dataset, "decode", counted)
    described = tfdistr.load_dataset("images", data_dir=folders[file_format])
    for index in range(workers):
        calls.clear()
        data = make_data(described, WorkerContext(workers, index, BATCH, shuffle=False))
        used = [int(i) for _, labels in data.dataset.take(4 * data.steps) for i in labels]
        assert set(calls) == set(used)
        assert len(used) / 4 == len(set(used)) <= EXAMPLES / workers + data.steps
        if in_memory:
            assert len(calls) == len(set(calls)), "what was decoded is kept"
        else:
            assert len(calls) >= len(used)


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_batches_in_arrays_are_those_of_the_dataset(folders, file_format, monkeypatch):
    described = tfdistr.load_dataset("images", data_dir=folders[file_format])
    for index in range(2):
        data = make_data(described, WorkerContext(2, index, BATCH, seed=3))
        again = make_data(described, WorkerContext(2, index, BATCH, seed=3))
        for step, (image, label) in enumerate(again.dataset.take(2 * data.steps)):
            own_image, own_label = data.arrays.batch(step)
            np.testing.assert_array_equal(own_image, image)
            np.testing.assert_array_equal(own_label, label)
        images, labels = data.arrays.batches(3 * data.steps, 4)
        assert images.shape == (4, BATCH // 2, 4, 5, 1)
        assert (images[..., 0, 0, 0] == labels).all()
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    assert make_data(described, WorkerContext(1, 0, BATCH)).arrays is None


def test_dictionaries_are_as_they_were(folders, monkeypatch):
    described = tfdistr.load_dataset("images", data_dir=folders["tfrecord"], supervised=False)
    (batch,) = make_data(described, WorkerContext(1, 0, BATCH, shuffle=False)).dataset.take(1)
    arrays = described.arrays()
    assert {name: (part.dtype.name, part.shape[1:].as_list()) for name, part in batch.items()} == {
        "half": ("float32", []), "image": ("uint8", [4, 5, 1]), "label": ("int64", []),
    }  # fmt: skip
    for name, part in batch.items():
        np.testing.assert_array_equal(part, arrays[name][:BATCH])
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    (batch,) = make_data(described, WorkerContext(1, 0, BATCH, shuffle=False)).dataset.take(1)
    assert batch["half"].dtype == tf.float16
    np.testing.assert_array_equal(batch["label"], arrays["label"][:BATCH])


def test_examples_of_unequal_shape_are_refused_by_the_batch(folders):
    described = tfdistr.load_dataset("sentences", data_dir=folders["tfrecord"], supervised=False)
    data = make_data(described, WorkerContext(2, 0, 2, shuffle=False))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot batch tensors with different shapes"):
        list(make_data(described, WorkerContext(1, 0, BATCH, shuffle=False)).dataset.take(2))
    assert next(iter(data.dataset))["words"].shape[0] == 1


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_the_log_says_how_the_files_are_read(folders, file_format, caplog):
    described = tfdistr.load_dataset("images", data_dir=folders[file_format])
    with caplog.at_level(logging.INFO, logger="tfdistr"):
        make_data(described, WorkerContext(2, 0, BATCH))
    how = {"tfrecord": "3 TFRecord files, by index", "array_record": "array_record files, by index"}
    assert f"load_dataset('images', 'train'): {how[file_format]}" in caplog.messages


@pytest.mark.parametrize("supervised", [True, False])
def test_files_that_are_elsewhere_are_read_in_order(folders, supervised, caplog, monkeypatch):
    described = tfdistr.load_dataset("images", data_dir=folders["tfrecord"], supervised=supervised)
    monkeypatch.setattr(os.path, "isfile", lambda path: ".tfrecord" not in str(path))
    with caplog.at_level(logging.INFO, logger="tfdistr"):
        steps = steps_of(described, 2, 6)
    labels = [batch[1] if supervised else batch["label"] for parts in steps for batch in parts]
    assert sorted(int(i) for part in labels for i in part) == list(range(EXAMPLES))
    message = "load_dataset('images', 'train'): TFRecord files that are not on this machine, in order"
    assert message in caplog.messages


@pytest.mark.mnist
@pytest.mark.skipif(not (TFDS / "mnist").exists(), reason=f"no MNIST in {TFDS}; set TFDISTR_TFDS_DIR")
def test_mnist_is_what_it_was():
    described = tfdistr.load_dataset("mnist", "test[:203]", data_dir=str(TFDS))
    x, y = described.arrays()
    parts = steps_of(described, 2, 26, shuffle=False)
    np.testing.assert_array_equal(np.concatenate([image for step in parts for image, _ in step]), x)
    np.testing.assert_array_equal(np.concatenate([label for step in parts for _, label in step]), y)


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> tuple[str, list[bytes]]:
    path = str(tmp_path_factory.mktemp("records") / "some.tfrecord")
    written = [os.urandom(size) for size in (0, 1, 100_000, 12, 7)]
    with tf.io.TFRecordWriter(path) as writer:
        for record in written:
            writer.write(record)
    return path, written


def test_records_by_index(records):
    path, written = records
    files, numbers = TFRecordFiles([path, path], [5, 5]), np.array([4, 0, 2, 1, 3])
    assert files.read(np.zeros(5, int), numbers) == [written[i] for i in numbers]
    parts = TFRecords(files, [(0, 1, 2), (0, 3, 0), (1, 0, 5)])
    assert len(parts) == 7
    assert parts.__getitems__([6, 0, 1, 2]) == [written[4], written[1], written[2], written[0]]
    assert parts.__getitems__([]) == []


@pytest.mark.parametrize(
    ("cut", "records_told", "received"),
    [(0, 4, "5 whole records of 4, and 0 bytes"), (0, 6, "5 whole records of 6, and 0 bytes"),
     (3, 5, "4 whole records of 5, and 20 bytes"), (15, 5, "4 whole records of 5, and 8 bytes")],
)  # fmt: skip
def test_a_file_that_is_not_whole(records, tmp_path, cut, records_told, received):
    path = tmp_path / "cut.tfrecord"
    data = Path(records[0]).read_bytes()
    path.write_bytes(data[: len(data) - cut])
    with pytest.raises(ArgumentError) as caught:
        TFRecordFiles([str(path)], [records_told]).positions(0)
    assert str(caught.value).splitlines() == [
        "A TFRecord file does not have the records of its data set.",
        f"Received: {path}: {received}",
        "Fix: Prepare the data set again.",
    ]

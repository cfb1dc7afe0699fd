"""Data sets by name: the digits, and those of TensorFlow Datasets, of which each worker decodes its own."""

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from paths import TFDS
from refusals import refusal

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


def test_digits_are_those_of_the_source():
    x, y = tfdistr.load_dataset("digits", "all").arrays()
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((1797, 8, 8, 1), np.uint8, (1797,), np.int64)
    assert (x.min(), x.max()) == (0, 16)
    assert np.bincount(y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert y[:10].tolist() == list(range(10))
    assert x[0, 0, :, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert int(x.sum()) == 561_718


def test_the_splits_of_digits_are_parts_of_all():
    everything = tfdistr.load_dataset("digits", "all").arrays()
    train, test = (tfdistr.load_dataset("digits", split).arrays() for split in ("train", "test"))
    assert (len(train[0]), len(test[0])) == (1437, 360)
    for whole, *parts in zip(everything, train, test, strict=True):
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_digits_as_a_tensorflow_dataset():
    dataset = tfdistr.load_dataset("digits", "test").dataset()
    _, labels = tfdistr.load_dataset("digits", "test").arrays()
    assert [int(label) for _, label in dataset] == labels.tolist()
    features = tfdistr.load_dataset("digits", "test", supervised=False).arrays()
    assert (features.keys(), features["label"].tolist()) == ({"image", "label"}, labels.tolist())


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    """By file format, a folder with "images": small pictures that tell their label, in several files.

    Beside them is "words", which has text and names no label.
    """
    import tensorflow_datasets as tfds

    class Images(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        KEYS: tuple[str, str] | None = ("image", "label")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(4, 5, 1)),
                "label": np.int64,
                "half": np.float16,
            }
            features = tfds.features.FeaturesDict(features | self.more())
            return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=self.KEYS)

        def more(self):
            return {}

        def text(self, number):
            return {}

        def _split_generators(self, download):
            return {"train": self._generate_examples(EXAMPLES), "test": self._generate_examples(5)}

        def _generate_examples(self, number):
            for i in range(number):
                yield i, {"image": np.full((4, 5, 1), i, np.uint8), "label": i, "half": i / 2} | self.text(i)

    class Words(Images):
        KEYS = None

        def more(self):
            return {"word": tfds.features.Text()}

        def text(self, number):
            return {"word": "a" * number}

    made = {}
    for kind, file_format in ((Images, "tfrecord"), (Images, "array_record"), (Words, "tfrecord")):
        folder = made.setdefault(file_format, str(tmp_path_factory.mktemp(file_format)))
        config = tfds.download.DownloadConfig(num_shards=FILES)
        builder = kind(data_dir=folder, file_format=file_format)
        builder.download_and_prepare(download_config=config, file_format=file_format)
    return made


def test_a_prepared_data_set_as_arrays(folders, monkeypatch):
    described = tfdistr.load_dataset("images", data_dir=folders["tfrecord"])
    x, y = described.arrays()
    assert sorted(y.tolist()) == list(range(EXAMPLES))
    np.testing.assert_array_equal(x[:, 0, 0, 0], y)
    for _ in range(2):
        assert [int(label) for _, label in described.dataset()] == y.tolist(), (
            "the order is the same each time"
        )
    size = EXAMPLES * (4 * 5 + 8 + 2)
    for most in (size, size - 1):
        monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", most)
        assert described.fits_in_memory() is (most == size)


@pytest.mark.parametrize(
    ("split", "examples"), [("test", 5), ("train[:30%]", 13), ("train+test", 48), ("all", 48)]
)
def test_the_splits_of_tensorflow_datasets(folders, split, examples):
    assert len(tfdistr.load_dataset("images", split, data_dir=folders["tfrecord"]).arrays()[1]) == examples


def test_text_is_read_one_by_one(folders):
    described = tfdistr.load_dataset("words", data_dir=folders["tfrecord"], supervised=False)
    assert "Received: 'words', split 'train'" in refusal(ArgumentError, described.arrays)
    steps = steps_of(described, 2, 6)
    words = [word for parts in steps for batch in parts for word in batch["word"].numpy()]
    assert sorted(words) == [b"a" * i for i in range(EXAMPLES)]


REFUSED = [
    ({"name": 3}, "`name` must be the name of a data set.", "3"),
    ({"name": "digits", "split": None}, "`split` must be the name of a split.", "None"),
    ({"name": "digits", "split": "dev"}, "`split` must be one of 'all', 'train', 'test'.", "'dev'"),
    ({"name": "no_such_data"}, "`name` must be 'digits' or a data set of TensorFlow Datasets.",
     "'no_such_data' (Dataset no_such_data not found.)"),
    ({"name": "mnist"}, "The data set is not prepared.", "'mnist', which is not in {folder}"),
    ({"name": "images", "split": "dev"},
     "`split` must be one of 'train', 'test', or a part of it such as 'train[:10%]'.",
     "'dev' (Unknown split 'dev'. Should be one of ['train', 'test'].)"),
    ({"name": "words"}, "'words' does not say which of its features are input and label.",
     "supervised=True"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "rule", "received"), REFUSED)
def test_what_is_refused(folders, arguments, rule, received):
    folder = folders["tfrecord"]
    with pytest.raises(ArgumentError) as caught:
        tfdistr.load_dataset(**{"data_dir": folder} | arguments)
    assert caught.value.message.startswith(rule)
    assert caught.value.received.startswith(received.format(folder=folder))
    assert caught.value.fix


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
    ("file_format", "split", "in_memory", "how"),
    [("tfrecord", "train[50%:]+test", False, "5 TFRecord files, by index"),
     ("array_record", "train[10:30]", True, "array_record files, by index")],
)  # fmt: skip
def test_the_global_batches_are_those_of_the_order(
    folders, file_format, split, in_memory, how, monkeypatch, caplog
):
    if not in_memory:
        monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    described = tfdistr.load_dataset("images", split, data_dir=folders[file_format])
    stored = numbers_of(described)
    order = Order(len(stored), BATCH, 3, shuffle=True)
    with caplog.at_level(logging.INFO, logger="tfdistr"):
        arrays = make_data(described, WorkerContext(3, 1, BATCH, seed=3)).arrays
    assert f"load_dataset('images', {split!r}): {how}" in caplog.messages
    assert (arrays is not None) is in_memory
    for workers in (1, 2, 3):
        steps = steps_of(described, workers, 2 * order.batches + 1)
        for number, parts in enumerate(steps):
            indices = order.indices(tf.constant(number, tf.int64)).numpy()
            expected = [stored[i] for i in indices]
            assert [int(i) for _, labels in parts for i in labels] == expected
            images = np.concatenate([image for image, _ in parts])
            np.testing.assert_array_equal(images, np.reshape(expected, (-1, 1, 1, 1)) * np.ones((1, 4, 5, 1)))
            assert images.dtype == np.uint8
            if arrays and workers == 3:
                np.testing.assert_array_equal(arrays.batch(number)[1], parts[1][1])


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


@pytest.mark.skipif(not (TFDS / "mnist").exists(), reason=f"no MNIST in {TFDS}; set DATA_DIR")
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


def test_records_need_no_disk(records, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    path, written = records
    assert TFRecordFiles([path]).read(np.zeros(2, int), np.array([4, 2])) == [written[4], written[2]]


@pytest.mark.parametrize(
    ("cut", "records_told", "received"),
    [(0, 4, "5 whole records of 4, and 0 bytes"), (0, 6, "5 whole records of 6, and 0 bytes"),
     (3, 5, "4 whole records of 5, and 20 bytes"), (15, 5, "4 whole records of 5, and 8 bytes")],
)  # fmt: skip
def test_a_file_that_is_not_whole(records, tmp_path, cut, records_told, received):
    path = tmp_path / "cut.tfrecord"
    data = Path(records[0]).read_bytes()
    path.write_bytes(data[: len(data) - cut])
    assert f"Received: {path}: {received}" in refusal(
        ArgumentError, TFRecordFiles([str(path)], [records_told]).positions, 0
    )

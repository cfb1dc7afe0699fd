"""Data sets by name: the digits that come with the package, and those of TensorFlow Datasets."""

import tempfile

import numpy as np
import pytest

import tfdistr
from tfdistr.data import datasets
from tfdistr.data.order.context import WorkerContext
from tfdistr.data.pipeline.worker_data import make_data
from tfdistr.errors import ArgumentError


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


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> str:
    """A folder with two small data sets: "pairs" of a number and a label, and "words" of unequal length."""
    import tensorflow_datasets as tfds

    class Small(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        KEYS = None

        def _info(self):
            features = tfds.features.FeaturesDict(self.features())
            return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=self.KEYS)

        def _split_generators(self, download):
            return {"train": self._generate_examples(), "test": self._generate_examples(4)}

    class Pairs(Small):
        KEYS = ("x", "y")

        def features(self):
            return {"x": tfds.features.Tensor(shape=(2,), dtype=np.float32), "y": np.int64}

        def _generate_examples(self, number=10):
            for i in range(number):
                yield i, {"x": np.array([i, -i], np.float32), "y": i}

    class Words(Small):
        def features(self):
            return {"word": tfds.features.Text()}

        def _generate_examples(self, number=10):
            for i in range(number):
                yield i, {"word": "a" * i}

    folder = str(tmp_path_factory.mktemp("tfds"))
    for builder in (Pairs(data_dir=folder), Words(data_dir=folder)):
        builder.download_and_prepare()
    return folder


def test_a_prepared_data_set_as_arrays(prepared):
    described = tfdistr.load_dataset("pairs", data_dir=prepared)
    assert described.fits_in_memory()
    x, y = described.arrays()
    assert sorted(y.tolist()) == list(range(10))
    np.testing.assert_array_equal(x, np.stack([y, -y], 1))


@pytest.mark.parametrize(
    ("split", "examples"), [("test", 4), ("train[:30%]", 3), ("train+test", 14), ("all", 14)]
)
def test_the_splits_of_tensorflow_datasets(prepared, split, examples):
    assert len(tfdistr.load_dataset("pairs", split, data_dir=prepared).arrays()[1]) == examples


def test_the_order_is_the_same_each_time(prepared):
    dataset = tfdistr.load_dataset("pairs", data_dir=prepared).dataset()
    labels = [int(y) for _, y in dataset]
    assert sorted(labels) == list(range(10))
    assert labels == [int(y) for _, y in dataset]
    assert labels == tfdistr.load_dataset("pairs", data_dir=prepared).arrays()[1].tolist()


def test_examples_of_unequal_shape_are_read_one_by_one(prepared):
    described = tfdistr.load_dataset("words", data_dir=prepared, supervised=False)
    assert not described.fits_in_memory()
    with pytest.raises(ArgumentError) as caught:
        described.arrays()
    assert str(caught.value).splitlines() == [
        "Cannot load the data set as arrays: it needs equally shaped examples, 512 MiB at most.",
        "Received: 'words', split 'train'",
        "Fix: Use .dataset(), which reads it example by example.",
    ]
    words = []
    for index in range(2):
        data = make_data(described, WorkerContext(2, index, 4))
        words += [word for batch in data.dataset.take(data.steps) for word in batch["word"].numpy()]
    assert sorted(words) == [b"a" * i for i in range(10)]


def test_a_large_data_set_is_read_one_by_one(prepared, monkeypatch):
    described = tfdistr.load_dataset("pairs", data_dir=prepared)
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 10 * (2 * 4 + 8))
    assert described.fits_in_memory()
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 10 * (2 * 4 + 8) - 1)
    assert not described.fits_in_memory()


@pytest.mark.parametrize(
    ("arguments", "rule", "received"),
    [
        ({"name": 3}, "`name` must be the name of a data set.", "3"),
        ({"name": "digits", "split": None}, "`split` must be the name of a split.", "None"),
        ({"name": "digits", "split": "dev"}, "`split` must be one of 'all', 'train', 'test'.", "'dev'"),
        (
            {"name": "no_such_data"},
            "`name` must be 'digits' or a data set of TensorFlow Datasets.",
            "'no_such_data' (Dataset no_such_data not found.)",
        ),
        (
            {"name": "mnist"},
            "The data set is not prepared.",
            "'mnist', which is not in {folder}",
        ),
        (
            {"name": "pairs", "split": "dev"},
            "`split` must be one of 'train', 'test', or a part of it such as 'train[:10%]'.",
            "'dev' (Unknown split 'dev'. Should be one of ['train', 'test'].)",
        ),
        (
            {"name": "words"},
            "'words' does not say which of its features are input and label.",
            "supervised=True",
        ),
    ],
)
def test_what_is_refused(prepared, arguments, rule, received):
    with pytest.raises(ArgumentError) as caught:
        tfdistr.load_dataset(**{"data_dir": prepared} | arguments)
    assert caught.value.message.startswith(rule)
    assert caught.value.received.startswith(received.format(folder=prepared))
    assert caught.value.fix

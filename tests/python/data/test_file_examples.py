"""Data sets in files: the batches are those of the same examples in arrays."""

import itertools
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from file_sets import EXAMPLES, SETS, FileSet, parquet_mixed, parquet_numbers
from nested import assert_same
from refusals import refusal
from slow import mostly_slow

from tfdistr.data import datasets
from tfdistr.data.order.context import WorkerContext
from tfdistr.data.pipeline import file_examples
from tfdistr.data.pipeline.file_examples import DecodedStore, FileErrors, RecentBlocks
from tfdistr.data.pipeline.host_cache import HostDisk, HostMemory
from tfdistr.data.pipeline.worker_data import make_data
from tfdistr.data.source import make_source
from tfdistr.errors import ArgumentError, TfdistrWarning

BATCH = 16

QUICK_SETS = [name for name in SETS if name != "arrow, resized images"]
SOME_SETS = ["parquet with text", "image_folder", "tfrecord"]  # one of each way to find an example


# Slow: resizes all images in TensorFlow.
@pytest.fixture(params=mostly_slow(SETS, quick=QUICK_SETS))
def files(request, tmp_path) -> FileSet:
    return SETS[request.param](tmp_path)


def batches(source: Any, steps: int, start: int = 0, workers: int = 1, index: int = 0, **more: Any) -> list:
    context = WorkerContext(workers, index, BATCH, **{"seed": 3} | more)
    return list(make_data(source, context, start=start).dataset.take(steps))


def test_batches_are_those_of_arrays(files, monkeypatch):
    """Of each of two workers, over two passes with a short last batch."""
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    arrays, described = make_source(*files.arrays), files.described()
    for index in range(2):
        place = {"workers": 2, "index": index, "shuffle": True}
        assert_same(batches(described, 14, **place), batches(arrays, 14, **place))


@pytest.mark.parametrize("in_memory", [True, False])
def test_batches_in_arrays_are_those_of_the_dataset(tmp_path, in_memory, monkeypatch):
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1 << 20 if in_memory else 1)
    data = make_data(parquet_numbers(tmp_path).described(), WorkerContext(2, 1, BATCH, seed=3))
    assert data.arrays.ahead is not in_memory, "a loop does not wait for the disk"
    assert data.arrays.share(3, 0).ahead is not in_memory
    for step, batch in enumerate(data.dataset.take(8)):
        assert_same([tf.nest.map_structure(tf.constant, data.arrays.batch(step))], [batch])


@pytest.mark.parametrize("files", SOME_SETS, indirect=True)
def test_batches_begin_at_any_step(files, monkeypatch):
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    assert_same(batches(files.described(), 5, 6), batches(make_source(*files.arrays), 5, 6))


@pytest.mark.parametrize("files", SOME_SETS, indirect=True)
def test_virtual_workers_have_the_batches_of_arrays(files):
    place = {"virtual_workers": (range(1, 3), 4)}
    assert_same(batches(files.described(), 7, **place), batches(make_source(*files.arrays), 7, **place))


def test_arrays_and_dataset_have_the_examples_in_order(files):
    described = files.described()
    assert_same(
        list(described.dataset().batch(EXAMPLES)), batches_of(tf.nest.map_structure(as_floatx, files.arrays))
    )
    made = tf.nest.flatten(described.arrays())
    for part, expected in zip(made, tf.nest.flatten(files.arrays), strict=True):
        np.testing.assert_array_equal(part, as_floatx(expected))


def batches_of(arrays: Any) -> list[Any]:
    return list(tf.data.Dataset.from_tensor_slices(arrays).batch(EXAMPLES))


def as_floatx(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def test_each_example_has_its_place(files):
    source = files.described().open()
    places = [source.place(index) for index in range(EXAMPLES)]
    assert all(map(os.path.isfile, dict(places)))
    if places[0][1] is None:  # images tell their number
        assert [int(Path(path).stem) for path, _ in places] == list(range(EXAMPLES))
    else:
        of_files = itertools.groupby(places, lambda place: place[0])
        rows = [[row for _, row in group] for _, group in of_files]
        assert len(rows) == len(dict(places))
        assert len(rows) > 1 or files.arguments["name"] == "arrow"  # one file with blocks
        assert all(found == list(range(len(found))) for found in rows)


class Counted:
    """Notes which blocks are decoded."""

    def __init__(self, source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blocks: list[int] = []
        pieces = source.pieces

        def noted(block: int) -> Any:
            self.blocks.append(block)
            return pieces(block)

        monkeypatch.setattr(source, "pieces", noted)


def test_a_pass_in_order_decodes_each_block_once(tmp_path, monkeypatch):
    source = parquet_mixed(tmp_path).described().open()
    counted = Counted(source, monkeypatch)
    monkeypatch.setattr(file_examples, "CACHE_BYTES", 1)
    recent = RecentBlocks(source)
    for first in range(0, EXAMPLES, BATCH):
        recent.take(np.arange(first, min(first + BATCH, EXAMPLES)))
    assert counted.blocks == list(range(len(source.ends)))
    recent.take(np.array([0]))
    assert counted.blocks[-1] == 0, "only the last blocks are kept"


def test_rows_of_recent_blocks_stay_within_the_memory(tmp_path, monkeypatch):
    source = parquet_mixed(tmp_path).described().open()
    counted = Counted(source, monkeypatch)
    recent = RecentBlocks(source)
    for _ in range(3):
        recent.take(np.arange(EXAMPLES))
    assert len(counted.blocks) == len(source.ends), "all of them are below the limit"


@pytest.mark.parametrize("make", [parquet_numbers, parquet_mixed])
def test_a_store_decodes_each_block_once_when_it_is_needed(make, tmp_path, monkeypatch):
    described = make(tmp_path).described()
    source = described.open()
    counted = Counted(source, monkeypatch)
    store = DecodedStore(source, HostMemory().disk)
    store.take(np.array([41, 0]))
    assert sorted(counted.blocks) == [0, 4]
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(EXAMPLES)
        in_order = RecentBlocks(described.open()).take(np.arange(EXAMPLES))
        expected = [array[order] for array in in_order]
        for part, array in zip(store.take(order), expected, strict=True):
            np.testing.assert_array_equal(part, array)
    assert sorted(counted.blocks) == list(range(len(source.ends)))


def test_workers_of_a_host_share_what_is_decoded(tmp_path, monkeypatch):
    described = parquet_mixed(tmp_path).described()
    texts: list[str] = []
    HostMemory.join(lambda text: texts.append(text) or [text])
    one, other = (HostMemory.join(lambda own: [*texts, own]) for _ in range(2))
    sources = [described.open() for _ in range(2)]
    counts = [Counted(source, monkeypatch) for source in sources]
    stores = [DecodedStore(source, memory.disk) for source, memory in zip(sources, (one, other), strict=True)]
    first = stores[0].take(np.arange(60))
    second = stores[1].take(np.arange(EXAMPLES))
    for part, again in zip(first, second, strict=True):
        np.testing.assert_array_equal(part, again[:60])
    assert sorted([*counts[0].blocks, *counts[1].blocks]) == list(range(len(sources[0].ends)))


def test_a_disk_without_space(tmp_path, monkeypatch, caplog):
    files = parquet_numbers(tmp_path)
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.warns(TfdistrWarning, match="Cannot store the decoded examples"):
        found = batches(files.described(), 7)
    assert_same(found, batches(make_source(*files.arrays), 7))
    assert caplog.messages == [
        "Cannot store the decoded examples of load_dataset('parquet') on the disk, so each shuffled "
        "batch decodes whole blocks of the files, which is slow: [Errno 28] No space left on device. Set the "
        "environment variable TMPDIR to a folder with more space."
    ]


def test_text_files_without_space_on_the_disk(tmp_path, monkeypatch):
    described = SETS["csv"](tmp_path).described()
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "no folder"))
    rule, received, fix = refusal(ArgumentError, batches, described, 1, shuffle=False)
    assert rule == "Cannot store the decoded examples of load_dataset('csv') on the disk."
    assert received.startswith(f"Received: [Errno 2] No such file or directory: '{tmp_path}/no folder")
    assert (
        fix == "Fix: Set the environment variable TMPDIR to a folder with more space, or use Parquet files."
    )


def test_the_disk_has_nothing_after_its_end(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    disk = HostMemory().disk
    assert isinstance(disk, HostDisk)
    (array,) = disk.arrays([((1000,), np.dtype(np.float64))])
    array[:] = 1
    extents = disk.put([b"one", b"", b"three"])
    assert disk.get(extents[::-1]).tolist() == [b"three", b"", b"one"]
    assert disk.get(disk.put([b"more"])).tolist() == [b"more"]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("shuffle", "limit", "how"),
    [(True, EXAMPLES * 24, "decoded into memory"), (False, 1, "in the order of the files"),
     (True, EXAMPLES * 24 - 1, "decoded into a file on the disk")],
)  # fmt: skip
def test_the_log_says_how_files_are_read(tmp_path, shuffle, limit, how, monkeypatch, caplog):
    described = parquet_numbers(tmp_path).described()
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", limit)
    with caplog.at_level(logging.INFO, logger="tfdistr"):
        make_data(described, WorkerContext(1, 0, BATCH, shuffle=shuffle))
    assert caplog.messages == [f"load_dataset('parquet'): 3 files, {how}"]


def test_a_file_that_changes_while_it_is_read(tmp_path, monkeypatch):
    """TensorFlow's error has the error for the file only as a text."""
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    described = parquet_numbers(tmp_path).described()
    path, errors = Path(described.files[2]), FileErrors()
    with errors.raised():
        data = make_data(described, WorkerContext(1, 0, BATCH, shuffle=False)).dataset
    os.utime(path, (1, 1))
    with pytest.raises(ArgumentError) as caught, errors.raised():
        list(data.take(7))
    assert caught.value.received == f"{path}, which was written again"
    path.unlink()
    with pytest.raises(ArgumentError, match="The files of a data set have") as caught, errors.raised():
        list(data.take(7))
    assert caught.value.received == f"{path}, which was removed (No such file or directory)"


def refuse(indices: Any) -> list[Any]:
    raise ArgumentError("A file must be whole.", received="a torn file", fix="Write it again.")


def test_other_errors_of_tensorflow_stay_as_they_are():
    errors = FileErrors()
    with pytest.raises(ArgumentError):  # a thread that reads ahead
        errors.recorded(refuse, None)(np.arange(1))
    with pytest.raises(tf.errors.InvalidArgumentError), errors.raised():
        tf.io.decode_raw(["a", "bc"], tf.uint8)


@pytest.mark.parametrize(
    ("error", "expected"),
    [(tf.errors.UnavailableError(None, None, "Socket closed"), tf.errors.UnavailableError),
     (tf.errors.InvalidArgumentError(None, None, "Invalid PNG data"), ArgumentError)],
)  # fmt: skip
def test_only_errors_that_images_cause_decode_them_again(error, expected):
    errors = FileErrors()
    errors.recorded(lambda indices: [], refuse)(np.arange(1))
    with pytest.raises(expected), errors.raised():
        raise error

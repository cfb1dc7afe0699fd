"""Records in files, by index: TFRecord and ArrayRecord files, and those of a TensorFlow Datasets data set.

A record of a TFRecord file is its length (8 bytes), a checksum of the length (4), the data, and a checksum of
the data (4). One pass over the lengths finds all records. ArrayRecord files have a list of their records; the
package array_record reads it.
"""

from __future__ import annotations

import functools
import itertools
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from tfdistr.data.readers.blocks import Array
from tfdistr.data.readers.examples import Examples
from tfdistr.data.readers.paths import damaged, first_line
from tfdistr.errors import ArgumentError
from tfdistr.utils.packages import array_record

_HEADER, _FOOTER = 12, 4
_OPEN_FILES = 64


def _scan(path: str) -> Iterator[tuple[int, int]]:
    """Yield the position and the length of the data of each whole record of a TFRecord file."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        position = _HEADER
        while len(header := file.read(_HEADER)) == _HEADER:
            length = struct.unpack("<Q", header[:8])[0]
            if position + length + _FOOTER > size:
                return
            yield position, length
            position += length + _FOOTER + _HEADER
            file.seek(position - _HEADER)


def _extents_of(path: str, most: int | None = None) -> tuple[Array, int]:
    """Find the data of the first whole records of a TFRecord file.

    Args:
        most: The number of records to look for; None for all.

    Returns:
        The position and the length of the data of each, an int64 array of shape (records, 2); and the
        position after the last one.
    """
    numbers = itertools.chain.from_iterable(itertools.islice(_scan(path), most))
    extents = np.fromiter(numbers, np.int64).reshape(-1, 2)
    return extents, int(extents[-1].sum()) + _FOOTER if len(extents) else 0


class TFRecordExamples(Examples):
    """The examples of TFRecord files. It is an error if the lengths of a file do not fit its size."""

    _KIND = "TFRecord files without compression"

    def open_files(self, paths: Sequence[str]) -> list[int]:
        """Find the records of the files."""
        self._positions = [self._positions_of(path) for path in paths]
        self._readers: dict[int, Any] = {}
        return [len(positions) for positions in self._positions]

    def _positions_of(self, path: str) -> Array:
        extents, end = _extents_of(path)
        size = os.path.getsize(path)
        if end != size:
            where = f"{path}, of {size} bytes: record {len(extents)} at {end}"
            raise damaged(self._KIND, f"{where} is not whole")
        return extents[:, 0] - _HEADER

    def records(self, file: int, numbers: Sequence[int]) -> Sequence[bytes]:
        """Return records of a file. TensorFlow compares their checksums."""
        import tensorflow as tf

        from tfdistr.tf_internals import random_record_reader

        found, path = [], self._files[file].path
        with self._lock:  # a reader has one position
            if file not in self._readers:
                if len(self._readers) == _OPEN_FILES:
                    self._readers.pop(next(iter(self._readers))).close()
                self._readers[file] = random_record_reader(path)
            for number in numbers:
                try:
                    record, _ = self._readers[file].read(int(self._positions[file][number]))
                except (tf.errors.OpError, IndexError) as error:
                    raise damaged(self._KIND, f"record {number} of {path}: {first_line(error)}") from error
                found.append(record)
        return found


class ArrayRecordExamples(Examples):
    """The examples of ArrayRecord files."""

    _KIND = "ArrayRecord files"

    def open_files(self, paths: Sequence[str]) -> list[int]:
        """Open a reader for each file."""
        self._readers = [self._open(path) for path in paths]
        return [reader.num_records() for reader in self._readers]

    def _open(self, path: str) -> Any:
        reader = array_record('load_dataset("arrayrecord")').ArrayRecordReader(path)
        if not reader.ok():
            raise damaged(self._KIND, f"{path}, which has no list of its records at its end")
        return reader

    def records(self, file: int, numbers: Sequence[int]) -> Sequence[bytes]:
        """Return records of a file."""
        with self._lock:
            try:
                found: Sequence[bytes] = self._readers[file].read(list(numbers))
            except (RuntimeError, IndexError, ValueError) as error:
                where = f"{self._files[file].path}, records {list(numbers)[:5]}"
                raise damaged(self._KIND, f"{where}: {first_line(error)}") from error
        return found


class Records(Protocol):
    """Records that are read by index."""

    def __len__(self) -> int: ...
    def __getitems__(self, indices: Sequence[int], /) -> Sequence[bytes]: ...


class TFRecordFile:
    """Records of one TFRecord file, as they are. The first read finds the positions of all records.

    Args:
        records: Number of records that the file must hold.
    """

    def __init__(self, path: str, records: int) -> None:
        self.path = path
        self.records = records

    @functools.cached_property
    def _file(self) -> Any:
        return open(self.path, "rb", buffering=0)

    @functools.cached_property
    def _extents(self) -> Array:
        extents, end = _extents_of(self.path, self.records)
        left = os.path.getsize(self.path) - end
        if left or len(extents) != self.records:
            raise ArgumentError(
                "A TFRecord file does not have the records of its data set.",
                received=f"{self.path}: {len(extents)} whole records of {self.records}, and {left} bytes",
                fix="Prepare the data set again.",
            )
        return extents

    def read(self, number: int) -> bytes:
        """Return the data of a record."""
        position, length = self._extents[number].tolist()
        return os.pread(self._file.fileno(), length, position)


class TFRecords:
    """Records of a split of TFRecord files. The split has some consecutive records of each file.

    Args:
        parts: For each part: the file, the number of its first record in the file, the number of records.
    """

    def __init__(self, parts: Sequence[tuple[TFRecordFile, int, int]]) -> None:
        self._parts = [(file, first) for file, first, _ in parts]
        self._ends = np.cumsum([count for *_, count in parts])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitems__(self, indices: Sequence[int]) -> list[bytes]:
        """Return the records with these indices."""
        numbers = np.searchsorted(self._ends, indices, side="right")
        starts = np.concatenate([[0], self._ends])[numbers]
        found = []
        for number, index in zip(numbers.tolist(), (np.asarray(indices) - starts).tolist(), strict=True):
            file, first = self._parts[number]
            found.append(file.read(first + index))
        return found


def open_records(builder: Any, split: str) -> tuple[Records | None, str]:
    """Open the records of a split of a prepared data set, in the order of the files in ``as_dataset``.

    Args:
        split: A split, or a part of one.

    Returns:
        The records, or None if they can only be read in order; and a description of how they are read.
    """
    info = builder.info
    kind = info.file_format.value if info.file_format else "unknown"
    if kind == "array_record":
        import tensorflow_datasets as tfds

        raw = tfds.decode.DeserializeMethod.RAW_BYTES
        return builder.as_data_source(split, deserialize_method=raw), "array_record files, by index"
    if kind != "tfrecord":
        return None, f"{kind} files, in order"
    instructions = info.splits[split].file_instructions
    names = {os.fspath(i.filename): i.examples_in_shard for i in instructions}
    if not all(os.path.isfile(name) for name in names):
        return None, "TFRecord files that are not on this machine, in order"
    files = {name: TFRecordFile(name, records) for name, records in names.items()}
    parts = [(files[os.fspath(i.filename)], i.skip, i.take) for i in instructions]
    return TFRecords(parts), f"{len(files)} TFRecord {'file' if len(files) == 1 else 'files'}, by index"

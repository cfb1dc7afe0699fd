"""Records of TFRecord and ArrayRecord files, by their number.

A record of a TFRecord file is its length (8 bytes), a checksum of the length (4), the data, and a checksum of
the data (4). One pass over the lengths finds all records. ArrayRecord files have a list of their records; the
package array_record reads it.
"""

from __future__ import annotations

import os
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfdistr.data.readers.examples import Examples
from tfdistr.data.readers.paths import damaged, first_line
from tfdistr.data.trees import Array
from tfdistr.errors import ArgumentError
from tfdistr.utils.packages import array_record

_HEADER, _FOOTER = 12, 4


def _ends(path: str) -> Iterator[int]:
    """Yield 0, then the position after each whole record of a TFRecord file."""
    with open(path, "rb") as file:
        size, end = os.fstat(file.fileno()).st_size, 0
        while end <= size:
            yield end
            file.seek(end)
            if len(header := file.read(_HEADER)) < _HEADER:
                return
            end += _HEADER + struct.unpack("<Q", header[:8])[0] + _FOOTER


class TFRecordFiles:
    """The records of TFRecord files, or of a prepared data set with these counts. Checksums are compared."""

    def __init__(self, paths: Sequence[str], counts: Sequence[int] | None = None) -> None:
        self.paths, self._counts = paths, counts
        self._known: dict[int, Array] = {}

    def positions(self, file: int) -> Array:
        """Return the positions of the records of a file, and of its end. The first call finds them."""
        if file not in self._known:
            path = self.paths[file]
            found = np.fromiter(_ends(path), np.int64)
            records, end, size = len(found) - 1, int(found[-1]), os.path.getsize(path)
            expected = self._counts[file] if self._counts else records
            if self._counts and (records, end) != (expected, size):
                raise ArgumentError(
                    "A TFRecord file does not have the records of its data set.",
                    received=f"{path}: {records} whole records of {expected}, and {size - end} bytes",
                    fix="Prepare the data set again.",
                )
            if end != size:
                raise _not_whole(f"{path}, of {size} bytes: record {records} at {end} is not whole")
            self._known[file] = found
        return self._known[file]

    def read(self, files: Array, numbers: Array) -> list[bytes]:
        """Return the records with these files and numbers."""
        import tensorflow as tf

        from tfdistr.tf_internals import record_iterator

        frames = [b""] * len(files)
        for file in np.unique(files).tolist():
            positions = self.positions(file)
            with open(self.paths[file], "rb", buffering=0) as opened:
                for place in np.flatnonzero(files == file).tolist():
                    start, end = positions[numbers[place] :][:2].tolist()
                    frames[place] = os.pread(opened.fileno(), end - start, start)
        found: list[bytes] = []
        reason = "is not whole"
        # TensorFlow's own random access reads all that is before a record: 1 ms each in a file of 16 MB.
        with tempfile.NamedTemporaryFile() as copy:
            copy.write(b"".join(frames))
            copy.flush()
            try:
                found.extend(record_iterator(copy.name))
            except tf.errors.OpError:
                reason = "has a wrong checksum"
        if len(found) < len(frames):
            place = len(found)
            raise _not_whole(f"record {numbers[place]} of {self.paths[files[place]]} {reason}")
        return found


def _not_whole(received: str) -> ArgumentError:
    return damaged("TFRecord files without compression", received)


class TFRecordExamples(Examples):
    """The examples of TFRecord files. It is an error if the lengths of a file do not fit its size."""

    def open_files(self, paths: Sequence[str]) -> list[int]:
        self._records = TFRecordFiles(paths)
        return [len(self._records.positions(file)) - 1 for file in range(len(paths))]

    def records(self, files: Array, numbers: Array) -> list[bytes]:
        return self._records.read(files, numbers)


class ArrayRecordExamples(Examples):
    """The examples of ArrayRecord files."""

    def open_files(self, paths: Sequence[str]) -> list[int]:
        self._lock = threading.Lock()  # a reader has one position
        self._readers = [self._open(path) for path in paths]
        return [reader.num_records() for reader in self._readers]

    @staticmethod
    def _open(path: str) -> Any:
        reader = array_record('load_dataset("arrayrecord")').ArrayRecordReader(path)
        if not reader.ok():
            raise damaged("ArrayRecord files", f"{path}, which has no list of its records at its end")
        return reader

    def records(self, files: Array, numbers: Array) -> list[bytes]:
        found = [b""] * len(files)
        for file in np.unique(files).tolist():
            places = np.flatnonzero(files == file)
            wanted = numbers[places].tolist()
            try:
                with self._lock:
                    read = self._readers[file].read(wanted)
            except (RuntimeError, IndexError, ValueError) as error:
                where = f"{self._files[file].path}, records {wanted[:5]}"
                raise damaged("ArrayRecord files", f"{where}: {first_line(error)}") from error
            for place, record in zip(places.tolist(), read, strict=True):
                found[place] = record
        return found

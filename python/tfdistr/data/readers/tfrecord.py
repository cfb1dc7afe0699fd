"""TFRecord files: the positions of the records are found by one pass over their lengths."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfdistr.data.readers.blocks import Array
from tfdistr.data.readers.examples import Examples
from tfdistr.data.readers.paths import damaged, first_line, open_all

_KIND = "TFRecord files without compression"
_HEADER = 12  # the length of a record, and a checksum of it
_OPEN_FILES = 64
_AROUND = 16  # these, and a checksum of the record


class TFRecordExamples(Examples):
    """The examples of TFRecord files.

    Args:
        files: The paths.
        sizes: The sizes of the files, if they were described before; else an empty sequence.
        features: The features of an example.
        target: The names of the features of ``y``.

    Raises:
        ArgumentError: A file has changed, or its lengths do not fit its size.
    """

    def __init__(
        self, files: Sequence[str], sizes: Sequence[int], features: dict[str, dict[str, Any]], target: Any
    ) -> None:
        opened = open_all(files, sizes)
        self._positions = [positions_of(path) for path in files]
        self._readers: dict[int, Any] = {}
        self._lock = threading.Lock()  # a reader has one position
        super().__init__(opened, [len(found) for found in self._positions], features, target)

    def records(self, file: int, numbers: Sequence[int]) -> Sequence[bytes]:
        """Return records of a file. TensorFlow compares their checksums."""
        import tensorflow as tf

        from tfdistr.tf_internals import random_record_reader

        found, path = [], self._files[file].path
        with self._lock:
            if file not in self._readers:
                if len(self._readers) == _OPEN_FILES:
                    self._readers.pop(next(iter(self._readers))).close()
                self._readers[file] = random_record_reader(path)
            for number in numbers:
                try:
                    record, _ = self._readers[file].read(int(self._positions[file][number]))
                except (tf.errors.OpError, IndexError) as error:
                    raise damaged(_KIND, f"record {number} of {path}: {first_line(error)}") from error
                found.append(record)
        return found


def positions_of(path: str) -> Array:
    """Return the position of each record of a file.

    Raises:
        ArgumentError: The file ends within a record.
    """
    positions: list[int] = []
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        position = 0
        while position < size:
            header = file.read(_HEADER)
            length = struct.unpack("<Q", header[:8])[0] if len(header) == _HEADER else size
            if position + length + _AROUND > size:
                where = f"{path}, of {size} bytes: record {len(positions)} at {position}"
                raise damaged(_KIND, f"{where} is not whole")
            positions.append(position)
            position += length + _AROUND
            file.seek(length + 4, os.SEEK_CUR)
    return np.array(positions, np.int64)


def open_tfrecord(files: Any, sizes: Any, options: Mapping[str, Any]) -> TFRecordExamples:
    """Open the files that are described."""
    return TFRecordExamples(files, sizes, **options)

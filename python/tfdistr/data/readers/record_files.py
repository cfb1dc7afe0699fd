"""The records of a TensorFlow Datasets data set by index. Records are serialized examples, not decoded."""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tfdistr.errors import ArgumentError


class Records(Protocol):
    """Records that are read by index."""

    def __len__(self) -> int: ...
    def __getitems__(self, indices: Sequence[int], /) -> Sequence[bytes]: ...


class TFRecordFile:
    """Records of one TFRecord file. The first read finds the positions of all records.

    A record is its length (8 bytes), a checksum of the length (4), the data, and a checksum of the data (4).

    Args:
        path: The file.
        records: Number of records that the file must hold.
    """

    def __init__(self, path: str, records: int) -> None:
        self.path = path
        self.records = records

    @functools.cached_property
    def _file(self) -> Any:
        return open(self.path, "rb", buffering=0)

    @functools.cached_property
    def _extents(self) -> np.ndarray[Any, Any]:
        """Position and length of the data of each record."""
        extents = np.empty((self.records, 2), np.int64)
        position = found = 0
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            while position < size and found < self.records:
                header = file.read(12)
                length = struct.unpack("<Q", header[:8])[0] if len(header) == 12 else size
                if position + length + 16 > size:
                    break
                extents[found] = position + 12, length
                found += 1
                position += length + 16
                file.seek(position)
        if position != size or found != self.records:
            raise ArgumentError(
                "A TFRecord file does not have the records of its data set.",
                received=f"{self.path}: {found} whole records of {self.records}, and {size - position} bytes",
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
        builder: The builder of TensorFlow Datasets.
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

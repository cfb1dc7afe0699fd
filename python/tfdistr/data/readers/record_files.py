"""Files of records that are serialized ``tf.train.Example``, by their number.

A record of a TFRecord file is its length (8 bytes), a checksum of the length (4), the data, and a checksum of
the data (4). One pass over the lengths finds all records. ArrayRecord files have a list of their records; the
package array_record reads it.
"""

from __future__ import annotations

import os
import struct
import threading
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfdistr.data.readers.blocks import Leaf, Single
from tfdistr.data.readers.paths import damaged, first_line, open_all
from tfdistr.data.trees import Array
from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import check_int
from tfdistr.utils.describe import describe
from tfdistr.utils.packages import array_record

#: The types of a ``tf.train.Example``.
TYPES = ("float32", "int64", "string")
#: Number of examples that are decoded together, if all examples are.
_TOGETHER = 64

Features = dict[str, dict[str, Any]]
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
        # TensorFlow's own random access reads all that is before a record. The copy is in memory.
        copy = f"ram://tfdistr-{uuid.uuid4().hex}"
        try:
            with tf.io.gfile.GFile(copy, "wb") as memory:
                memory.write(b"".join(frames))
            found.extend(record_iterator(copy))
        except tf.errors.OpError:
            reason = "has a wrong checksum"
        finally:
            tf.io.gfile.remove(copy)
        if len(found) < len(frames):
            place = len(found)
            raise _not_whole(f"record {numbers[place]} of {self.paths[files[place]]} {reason}")
        return found


def _not_whole(received: str) -> ArgumentError:
    return damaged("TFRecord files without compression", received)


class Examples(Single):
    """The examples of files of records, in the order of the files."""

    def __init__(self, files: Sequence[str], sizes: Sequence[int], features: Features, target: Any) -> None:
        self._files, self._features = open_all(files, sizes), features
        self._file_ends = np.cumsum(self.open_files(files), dtype=np.int64)
        targets = (target,) if isinstance(target, str) else target or ()
        parts: list[Any] = [_structure([name for name in features if name not in targets], features)]
        self._names = [sorted(name for name in features if name not in targets)]
        if targets:
            parts.append(_structure(list(targets), features, alone=isinstance(target, str)))
            self._names.append(sorted(targets))
        super().__init__(tuple(parts), int(self._file_ends[-1]), _TOGETHER)

    @abstractmethod
    def open_files(self, paths: Sequence[str]) -> Sequence[int]:
        """Open the files, and return the number of records of each."""

    @abstractmethod
    def records(self, files: Array, numbers: Array) -> list[bytes]:
        """Return the records with these files and numbers."""

    def check(self) -> None:
        """Decode the first record of each file."""
        for end, before in zip(self._file_ends, [0, *self._file_ends[:-1]], strict=True):
            if end > before:
                self.take(np.array([before]))

    def _numbered(self, indices: Array) -> tuple[Array, Array]:
        """Return the files of examples, and their numbers there."""
        files = np.searchsorted(self._file_ends, indices, side="right")
        return files, indices - np.concatenate([[0], self._file_ends])[files]

    def place(self, index: int) -> tuple[str, int]:
        files, numbers = self._numbered(np.array([index]))
        return self._files[files[0]].path, int(numbers[0])

    def take(self, indices: Array) -> list[Array]:
        import tensorflow as tf

        files, numbers = self._numbered(indices)
        for file in np.unique(files).tolist():
            self._files[file].check()
        found = self.records(files, numbers)
        try:
            parsed = self._parse(found)
        except tf.errors.OpError:
            for file, number, record in zip(files.tolist(), numbers.tolist(), found, strict=True):
                self._check_one(file, number, record)
            raise
        return [parsed[name] for names in self._names for name in names]

    def _parse(self, records: list[bytes]) -> dict[str, Array]:
        import tensorflow as tf

        features = {
            name: tf.io.FixedLenFeature(one["shape"], one["dtype"], one["default"])
            for name, one in self._features.items()
        }
        with tf.device("CPU:0"):
            parsed = tf.io.parse_example(tf.constant(records, tf.string), features)
        return {name: value.numpy() for name, value in parsed.items()}

    def _check_one(self, file: int, number: int, record: bytes) -> None:
        import tensorflow as tf

        try:
            self._parse([record])
        except tf.errors.OpError as error:
            raise ArgumentError(
                "Each record must be a tf.train.Example that has the features of `features`.",
                received=f"record {number} of {self._files[file].path}: {first_line(error)}",
                fix="Correct the type, the shape or the name, or give the feature a default value.",
            ) from error


def example_options(features: object = None, target: object = None) -> dict[str, Any]:
    """Check the arguments of files of examples. Return them without TensorFlow objects."""
    if not isinstance(features, Mapping) or not features or not all(isinstance(n, str) for n in features):
        raise ArgumentError(
            "`features` must describe each feature of an example by its name.",
            received=describe(features),
            fix='Pass features={"x": {"shape": [28, 28], "dtype": "float32"}, "y": "int64"}, for example.',
        )
    plain = {name: _feature(name, value) for name, value in features.items()}
    listed = target if isinstance(target, list | tuple) else [] if target is None else [target]
    if any(not isinstance(one, str) or one not in plain for one in listed) or len(set(listed)) == len(plain):
        raise ArgumentError(
            "`target` must name a feature, and leave one for `x`.",
            received=f"{target!r}, of the features {', '.join(map(repr, plain))}",
            fix="Correct the name, or describe another feature.",
        )
    return {"features": plain, "target": tuple(listed) if isinstance(target, list | tuple) else target}


def _feature(name: str, value: object) -> dict[str, Any]:
    """Return the plain form of a ``tf.io.FixedLenFeature``, of a dictionary, or of the name of a type."""
    if hasattr(value, "dtype") and hasattr(value, "default_value") and hasattr(value, "shape"):
        value = {"shape": list(value.shape), "dtype": value.dtype, "default": value.default_value}
    given = {"dtype": value} if not isinstance(value, Mapping) else dict(value)
    kind = getattr(given.get("dtype"), "name", given.get("dtype"))
    shape = given.get("shape", ())
    shape = shape if isinstance(shape, list | tuple) else (shape,)
    if kind not in TYPES or given.keys() - {"dtype", "shape", "default"}:
        raise ArgumentError(
            "A feature has a dtype ('float32', 'int64' or 'string'), a shape, and perhaps a default.",
            received=f"{name!r}: {value!r}",
            fix=f'Pass features={{{name!r}: {{"shape": [28, 28], "dtype": "float32"}}}}, for example.',
        )
    sides = [check_int("shape", side) for side in shape]
    return {"shape": sides, "dtype": kind, "default": given.get("default")}


def _structure(names: list[str], features: Features, alone: bool = False) -> Any:
    kinds = {name: "O" if features[name]["dtype"] == "string" else features[name]["dtype"] for name in names}
    leaves = {name: Leaf(np.dtype(kinds[name]), tuple(features[name]["shape"])) for name in names}
    return next(iter(leaves.values())) if alone or len(leaves) == 1 else leaves


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

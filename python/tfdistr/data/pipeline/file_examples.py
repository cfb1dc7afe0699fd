"""Examples in files by index: the choice of a reader for a data set, and its batches."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import tensorflow as tf

from tfdistr.data import datasets
from tfdistr.data.pipeline.host_cache import HostDisk, HostMemory
from tfdistr.data.pipeline.index_batches import Indexed
from tfdistr.data.readers.blocks import Blocks, Single, joined
from tfdistr.data.readers.described import FileDataset
from tfdistr.data.source import pack_parts
from tfdistr.data.trees import Array, filled
from tfdistr.errors import ArgumentError

log = logging.getLogger("tfdistr")

Take = Callable[[Array], list[Array]]

#: Bytes of blocks that a worker keeps, if it keeps them in memory of its own.
CACHE_BYTES = 64 * 1024 * 1024
#: Blocks that it keeps at least: a batch may begin in one and end in the next.
_FEWEST = 2


class RecentBlocks:
    """Stored rows of blocks; the most recent blocks stay in memory."""

    def __init__(self, source: Blocks) -> None:
        self._source = source
        self._recent: OrderedDict[int, list[Array]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()  # several batches may be made at the same time

    def take(self, indices: Array) -> list[Array]:
        """Return the rows with these indices, an array for each leaf."""
        rows = [np.empty((len(indices), *leaf.shape), leaf.kind) for leaf in self._source.stored]
        blocks = np.searchsorted(self._source.ends, indices, side="right")
        for block in np.unique(blocks).tolist():
            places = np.flatnonzero(blocks == block)
            own = indices[places] - self._source.first(block)
            for part, array in zip(rows, self._read(block), strict=True):
                part[places] = array[own]
        return rows

    def _read(self, block: int) -> list[Array]:
        with self._lock:
            if block in self._recent:
                self._recent.move_to_end(block)
                return self._recent[block]
            arrays = joined(list(self._source.pieces(block)), self._source.stored)
            self._recent[block] = arrays
            self._bytes += _size(arrays)
            while len(self._recent) > _FEWEST and self._bytes > CACHE_BYTES:
                _, left = self._recent.popitem(last=False)
                self._bytes -= _size(left)
            return arrays


class DecodedStore:
    """Rows that are read and kept when one of them is first needed: a block, or one of ``Single``.

    The workers of a host may share it: a worker that reads rows writes them, then marks them as present. Two
    workers may do this at the same time, because they write the same values.

    Args:
        memory: Holds the rows. Only the disk can hold text.
        decoded: Whether images are decoded before they are kept.
    """

    def __init__(self, source: Blocks, memory: HostMemory, *, decoded: bool = False) -> None:
        self._source, self._memory, self._decoded = source, memory, decoded
        leaves = source.leaves if decoded else source.stored
        self._text = [leaf.is_text for leaf in leaves]
        # All parts of a row lie together: on the disk, each place costs a read. Text has its position there.
        formats = [(np.int64, (2,)) if leaf.is_text else (leaf.kind, leaf.shape) for leaf in leaves]
        self._names = [f"part {place}" for place in range(len(leaves))]
        row = np.dtype({"names": self._names, "formats": formats}, align=True)
        units = len(source) if isinstance(source, Single) else len(source.ends)
        self._marks, self._rows = memory.arrays([((units,), np.dtype(bool)), ((len(source),), row)])
        # The marks that this worker has read: it can read their rows without the lock.
        self._present = np.zeros(units, bool)
        self._filling = threading.Lock()

    def take(self, indices: Array) -> list[Array]:
        """Return the rows with these indices, an array for each leaf."""
        single = isinstance(self._source, Single)
        units = indices if single else np.searchsorted(self._source.ends, indices, side="right")
        if not self._present[units].all():
            self._fill(np.unique(units))
        rows = self._rows.take(indices)
        return [
            self._disk.get(rows[name]) if text else np.ascontiguousarray(rows[name])
            for name, text in zip(self._names, self._text, strict=True)
        ]

    def _fill(self, units: Array) -> None:
        with self._filling:
            missing = self._missing(units)
            if isinstance(self._source, Single):
                if len(missing):
                    self._write(missing, missing, self._source.take(missing))
                    self._mark(missing)
                return
            # Workers need many of the same blocks at first, so each starts with another one.
            for block in np.roll(missing, os.getpid() % max(len(missing), 1)).tolist():
                if len(self._missing(np.array([block]))):
                    start = self._source.first(block)
                    for piece in self._source.pieces(block):
                        end = start + len(piece[0])
                        self._write(slice(start, end), np.arange(start, end), piece)
                        start = end
                    self._mark(block)

    def _missing(self, units: Array) -> Array:
        with self._memory.lock():
            self._present |= self._marks
        missing: Array = units[~self._present[units]]
        return missing

    def _write(self, places: slice | Array, indices: Array, arrays: list[Array]) -> None:
        if self._decoded:
            arrays = self._source.decoded(arrays, indices)
        for name, text, array in zip(self._names, self._text, arrays, strict=True):
            self._rows[name][places] = self._disk.put(array.tolist()) if text else array

    def _mark(self, units: int | Array) -> None:
        with self._memory.lock():
            self._marks[units] = True
        self._present[units] = True

    @property
    def _disk(self) -> HostDisk:
        assert isinstance(self._memory, HostDisk)
        return self._memory


def _size(arrays: list[Array]) -> int:
    text = (value for array in arrays if array.dtype.hasobject for value in array.tolist())
    return sum(array.nbytes for array in arrays) + sum(map(len, text))


class FileErrors:
    """The errors of files that TensorFlow's threads read, while this object is entered."""

    def __init__(self) -> None:
        self._refused: list[ArgumentError] = []
        # What decodes the last batches of TensorFlow's graph again, because its error names no file.
        self._decoded: deque[Callable[[], Any]] = deque(maxlen=256)

    def recorded(self, read: Take, decode: Take | None) -> Take:
        """Return a function that reads and records errors; ``decode`` decodes what the graph will decode."""

        @functools.wraps(read)
        def recorded(indices: Array) -> list[Array]:
            if decode:
                self._decoded.append(functools.partial(decode, indices))
            try:
                return read(indices)
            except ArgumentError as error:
                self._refused.append(error)
                raise

        return recorded

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Replace TensorFlow's error, which has the error for a file as text only, by that error."""
        before = _errors.set(self)
        try:
            yield
        except tf.errors.OpError as error:
            for refused in self._refused:
                if str(refused) in error.message:
                    raise refused from error
            # Images cause no other errors, such as the one for a lost worker, which must not wait for this.
            if isinstance(error, tf.errors.InvalidArgumentError):
                for decode_again in list(self._decoded):
                    try:
                        decode_again()
                    except ArgumentError as refused:
                        raise refused from error
            raise
        finally:
            _errors.reset(before)


#: What records the errors of the data that is opened.
_errors: ContextVar[FileErrors | None] = ContextVar("errors of files", default=None)


def of_files(described: FileDataset, memory: HostMemory, *, shuffle: bool) -> Indexed:
    """Return the examples of a data set in files; ``shuffle`` if they are read in random order."""
    source = described.open()
    size = len(source) * sum(leaf.nbytes for leaf in source.leaves)
    in_memory = size <= datasets.IN_MEMORY_BYTES and not any(leaf.is_text for leaf in source.leaves)
    return of_blocks(
        source, described.name, memory, in_memory=in_memory, shuffle=shuffle, files=len(described.files)
    )


def of_blocks(
    source: Blocks, name: str, memory: HostMemory, *, in_memory: bool, shuffle: bool = False, files: int = 0
) -> Indexed:
    """Return examples of a data set; see ``of_files``."""
    if in_memory:
        read: Take = DecodedStore(source, memory, decoded=True).take
        how = "decoded into memory"
    else:
        read, how = _reader(source, name, memory, shuffle)
    if files:
        log.info("load_dataset(%r): %d files, %s", name, files, how)
    leaves, structure = source.leaves, pack_parts(source.structure)
    stored = leaves if in_memory else source.stored

    def take(indices: Array) -> list[Array]:
        return read(indices) if in_memory else source.decoded(read(indices), indices)

    kinds = [tf.as_dtype(leaf.kind) for leaf in stored]
    in_graph = stored != leaves  # and not in NumPy: this costs two copies of each image less
    recorded = (_errors.get() or FileErrors()).recorded(read, take if in_graph else None)

    def batch(indices: tf.Tensor) -> Any:
        parts = tf.numpy_function(recorded, [indices], kinds, stateful=False)
        if in_graph:
            parts = source.decoded_in_graph(parts)
        for part, leaf in zip(parts, leaves, strict=True):
            part.set_shape((None, *leaf.shape))
        return filled(structure, iter(parts))

    def in_arrays(indices: Array) -> object:
        return filled(structure, iter(take(indices)))

    # Data in memory is gathered on the thread of the loop. Other data is prefetched during the steps before.
    return Indexed(len(source), batch, in_arrays, parallel=not in_memory, ahead=not in_memory)


def _reader(source: Blocks, name: str, memory: HostMemory, shuffle: bool) -> tuple[Take, str]:
    if isinstance(source, Single):
        return source.take, "by index"
    if not shuffle and not source.only_once:
        return RecentBlocks(source).take, "in the order of the files"
    try:
        return DecodedStore(source, memory.disk).take, "decoded into a file on the disk"
    except OSError as error:
        if source.only_once:
            raise ArgumentError(
                f"Cannot store the decoded examples of load_dataset({name!r}) on the disk.",
                received=str(error),
                fix="Set the environment variable TMPDIR to a folder with more space, or use Parquet files.",
            ) from error
        log.warning(
            "Cannot store the decoded examples of load_dataset(%r) on the disk, so each shuffled batch "
            "decodes whole blocks of the files, which is slow: %s. Set the environment variable TMPDIR to a "
            "folder with more space.", name, error,
        )  # fmt: skip
    return RecentBlocks(source).take, "block by block"

"""Examples of data sets in files by index: the choice of a reader for a data set, and its batches."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfdistr.data.pipeline.host_cache import HostDisk, HostMemory
from tfdistr.data.pipeline.index_batches import Indexed
from tfdistr.data.readers.blocks import Array, Blocks, Single, leaves_of
from tfdistr.data.readers.described import FileDataset, pack
from tfdistr.data.source import pack_parts
from tfdistr.errors import ArgumentError

#: Bytes of decoded blocks that a worker keeps, if it keeps them in memory of its own.
CACHE_BYTES = 64 * 1024 * 1024
#: Blocks that it keeps at least: a batch may begin in one and end in the next.
_FEWEST = 2


class RecentBlocks:
    """Rows of blocks; the most recent blocks stay in memory."""

    def __init__(self, source: Blocks) -> None:
        self._source = source
        self._leaves = leaves_of(source.structure)
        self._recent: OrderedDict[int, list[Array]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()  # several batches may be made at the same time

    def take(self, indices: Array) -> list[Array]:
        """Return the rows with these indices, an array for each leaf."""
        rows = [np.empty((len(indices), *leaf.shape), leaf.kind) for leaf in self._leaves]
        blocks = np.searchsorted(self._source.ends, indices, side="right")
        for block in np.unique(blocks).tolist():
            places = np.flatnonzero(blocks == block)
            own = indices[places] - self._source.first(block)
            for part, array in zip(rows, self._decoded(block), strict=True):
                part[places] = array[own]
        return rows

    def _decoded(self, block: int) -> list[Array]:
        with self._lock:
            if block in self._recent:
                self._recent.move_to_end(block)
                return self._recent[block]
            arrays = self._source.read(block)
            self._recent[block] = arrays
            self._bytes += _size(arrays)
            while len(self._recent) > _FEWEST and self._bytes > CACHE_BYTES:
                _, left = self._recent.popitem(last=False)
                self._bytes -= _size(left)
            return arrays


class DecodedStore:
    """Rows of blocks; each block is decoded when one of its rows is first needed, and then kept.

    The workers of a host may share it: a worker that decodes a block writes its rows, then marks them as
    present. Two workers may do this at the same time, because they write the same values.

    Args:
        memory: Holds the rows. Only the disk can hold text.
    """

    def __init__(self, source: Blocks, memory: HostMemory) -> None:
        self._source, self._memory = source, memory
        leaves = leaves_of(source.structure)
        self._text = [leaf.is_text for leaf in leaves]
        # All parts of a row lie together: on the disk, each place costs a read. Text has its position there.
        formats = [(np.int64, (2,)) if leaf.is_text else (leaf.kind, leaf.shape) for leaf in leaves]
        self._names = [f"part {place}" for place in range(len(leaves))]
        row = np.dtype({"names": self._names, "formats": formats}, align=True)
        self._marks, self._rows = memory.arrays(
            [((len(source.ends),), np.dtype(bool)), ((len(source),), row)]
        )
        # The marks that this worker has read: it can read these blocks without the lock.
        self._present = np.zeros(len(source.ends), bool)
        self._filling = threading.Lock()

    def take(self, indices: Array) -> list[Array]:
        """Return the rows with these indices, an array for each leaf."""
        blocks = np.searchsorted(self._source.ends, indices, side="right")
        if not self._present[blocks].all():
            self._fill(np.unique(blocks))
        rows = self._rows.take(indices)
        return [
            self._disk.get(rows[name]) if text else np.ascontiguousarray(rows[name])
            for name, text in zip(self._names, self._text, strict=True)
        ]

    def _fill(self, blocks: Array) -> None:
        with self._filling:
            with self._memory.lock():
                self._present |= self._marks
            missing = blocks[~self._present[blocks]]
            # Workers need many of the same blocks at first, so each starts with another one.
            for block in np.roll(missing, os.getpid() % max(len(missing), 1)).tolist():
                with self._memory.lock():
                    self._present |= self._marks
                if not self._present[block]:
                    self._write(block)

    def _write(self, block: int) -> None:
        start = self._source.first(block)
        for piece in self._source.pieces(block):
            end = start + len(piece[0])
            for name, text, array in zip(self._names, self._text, piece, strict=True):
                self._rows[name][start:end] = self._disk.put(array.tolist()) if text else array
            start = end
        with self._memory.lock():
            self._marks[block] = True
        self._present[block] = True

    @property
    def _disk(self) -> HostDisk:
        assert isinstance(self._memory, HostDisk)
        return self._memory


def _size(arrays: list[Array]) -> int:
    return sum(_bytes_of(array) for array in arrays)


def _bytes_of(array: Array) -> int:
    texts: Any = array.tolist() if array.dtype.hasobject else ()
    return array.nbytes + sum(map(len, texts))


log = logging.getLogger("tfdistr")

Take = Callable[[Array], list[Array]]

# The errors of files that were read in TensorFlow's threads, since the last check.
_refused: list[ArgumentError] = []
# Functions that decode the last batches of TensorFlow's graph again, because its error names no file.
_decoded: deque[Callable[[], Any]] = deque(maxlen=256)


def of_files(described: FileDataset, memory: HostMemory, *, shuffle: bool) -> Indexed:
    """Return the examples of a data set in files; ``shuffle`` if they are read in random order."""
    source = described.open()
    leaves, structure = leaves_of(source.structure), pack_parts(source.structure)
    in_memory = described.fits_in_memory(source)
    encoded = source if in_memory else source.encoded
    read, how = _reader(encoded, described.name, memory, shuffle, in_memory)
    log.info("load_dataset(%r): %d files, %s", described.name, len(described.files), how)
    kinds = [tf.as_dtype(leaf.kind) for leaf in leaves_of(encoded.structure)]

    def take(indices: Array) -> list[Array]:
        arrays = read(indices)
        return arrays if encoded is source else source.decoded(arrays, indices)

    @functools.wraps(read)
    def recorded(indices: Array) -> list[Array]:
        if encoded is not source:
            _decoded.append(functools.partial(take, indices))
        try:
            return read(indices)
        except ArgumentError as error:
            _refused.append(error)
            raise

    def batch(indices: tf.Tensor) -> Any:
        parts = tf.numpy_function(recorded, [indices], kinds, stateful=False)
        if encoded is not source:
            # Here and not in NumPy: two copies of each image less.
            parts = source.decoded_in_graph(parts)
        for part, leaf in zip(parts, leaves, strict=True):
            part.set_shape((None, *leaf.shape))
        return pack(structure, iter(parts))

    def in_arrays(indices: Array) -> Any:
        return pack(structure, iter(take(indices)))

    # Data in memory is gathered on the thread of the loop. Other data is prefetched during the steps before.
    return Indexed(len(source), batch, in_arrays, parallel=not in_memory, ahead=not in_memory)


def _reader(
    source: Blocks, name: str, memory: HostMemory, shuffle: bool, in_memory: bool
) -> tuple[Take, str]:
    if in_memory:
        return DecodedStore(source, memory).take, "decoded into memory"
    if isinstance(source, Single):
        return source.take, "by index"
    return _stored(source, name, memory, shuffle)


def _stored(source: Blocks, name: str, memory: HostMemory, shuffle: bool) -> tuple[Take, str]:
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


@contextlib.contextmanager
def refused_files() -> Iterator[None]:
    """Replace TensorFlow's error, which has the error for a file as text only, by that error."""
    _refused.clear()
    _decoded.clear()
    try:
        yield
    except tf.errors.OpError as error:
        # A prefetching thread of an earlier job may also have been refused.
        for refused in _refused:
            if str(refused) in error.message:
                raise refused from error
        # Images cause no other errors, such as the one for a lost worker, which must not wait for this.
        for decode_again in list(_decoded) if isinstance(error, tf.errors.InvalidArgumentError) else ():
            try:
                decode_again()
            except ArgumentError as refused:
                raise refused from error
        raise
    finally:
        _decoded.clear()

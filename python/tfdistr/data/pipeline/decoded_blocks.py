"""Rows of decoded blocks by index: from a small cache, or from a store that decodes each block once.

A shuffled batch has rows of many blocks. To decode a whole block for each of them would take far longer than
the training. So the rows of all blocks are kept, in the order of the examples: in the memory of the host if
they fit, else in a file on its disk. A row there is one read. Rows in the order of the files need no store.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from tfdistr.data.pipeline.host_cache import HostDisk, HostMemory
from tfdistr.data.readers.blocks import Array, Blocks, leaves_of

#: Bytes of decoded blocks that a worker keeps, if it keeps them in memory of its own.
CACHE_BYTES = 64 * 1024 * 1024
#: Blocks that it keeps at least: a batch may begin in one and end in the next.
_FEWEST = 2


class RecentBlocks:
    """Rows of blocks, of which the last ones stay in memory.

    Args:
        source: The blocks.
    """

    def __init__(self, source: Blocks) -> None:
        self._source = source
        self._leaves = leaves_of(source.structure)
        self._kept: OrderedDict[int, list[Array]] = OrderedDict()
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
            if block in self._kept:
                self._kept.move_to_end(block)
                return self._kept[block]
            arrays = self._source.read(block)
            self._kept[block] = arrays
            self._bytes += _size(arrays)
            while len(self._kept) > _FEWEST and self._bytes > CACHE_BYTES:
                _, left = self._kept.popitem(last=False)
                self._bytes -= _size(left)
            return arrays


class DecodedStore:
    """Rows of blocks, each of which is decoded when one of its rows is first needed, and then kept.

    The workers of a host may share it: a worker that decodes a block writes its rows, then notes that they
    are there. Two workers may do this at the same time, because they write the same values.

    Args:
        source: The blocks.
        memory: Holds the rows. Only the disk can hold text.

    Raises:
        OSError: The disk has not enough space.
    """

    def __init__(self, source: Blocks, memory: HostMemory) -> None:
        self._source, self._memory = source, memory
        leaves = leaves_of(source.structure)
        self._text = [leaf.is_text for leaf in leaves]
        # All parts of a row lie together: on the disk, each place costs a read. Text has its position there.
        formats = [(np.int64, (2,)) if leaf.is_text else (leaf.kind, leaf.shape) for leaf in leaves]
        self._names = [f"part {place}" for place in range(len(leaves))]
        row = np.dtype({"names": self._names, "formats": formats}, align=True)
        self._noted, self._rows = memory.arrays(
            [((len(source.ends),), np.dtype(bool)), ((len(source),), row)]
        )
        # The notes that this worker has read: it can read these blocks without the lock.
        self._known = np.zeros(len(source.ends), bool)
        self._filling = threading.Lock()

    def take(self, indices: Array) -> list[Array]:
        """Return the rows with these indices, an array for each leaf."""
        blocks = np.searchsorted(self._source.ends, indices, side="right")
        if not self._known[blocks].all():
            self._fill(np.unique(blocks))
        rows = self._rows.take(indices)
        return [
            self._disk.get(rows[name]) if text else np.ascontiguousarray(rows[name])
            for name, text in zip(self._names, self._text, strict=True)
        ]

    def _fill(self, blocks: Array) -> None:
        with self._filling:
            with self._memory.lock():
                self._known |= self._noted
            missing = blocks[~self._known[blocks]]
            # Workers need many of the same blocks at first, so each begins with another one.
            for block in np.roll(missing, os.getpid() % max(len(missing), 1)).tolist():
                with self._memory.lock():
                    self._known |= self._noted
                if not self._known[block]:
                    self._write(block)

    def _write(self, block: int) -> None:
        start = self._source.first(block)
        for piece in self._source.pieces(block):
            end = start + len(piece[0])
            for name, text, array in zip(self._names, self._text, piece, strict=True):
                self._rows[name][start:end] = self._disk.put(array.tolist()) if text else array
            start = end
        with self._memory.lock():
            self._noted[block] = True
        self._known[block] = True

    @property
    def _disk(self) -> HostDisk:
        assert isinstance(self._memory, HostDisk)
        return self._memory


def _size(arrays: list[Array]) -> int:
    return sum(_bytes_of(array) for array in arrays)


def _bytes_of(array: Array) -> int:
    texts: Any = array.tolist() if array.dtype.hasobject else ()
    return array.nbytes + sum(map(len, texts))

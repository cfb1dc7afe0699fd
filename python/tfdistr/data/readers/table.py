"""Blocks of tables of Arrow: row groups of Parquet files, record batches of Arrow files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfdistr.data.readers.blocks import Array, Blocks, leaves_of
from tfdistr.data.readers.columns import FileColumns, Where

#: Rows that are decoded at once, at most, and the bytes that they may take.
_ROWS, _BYTES = 65_536, 64 * 1024 * 1024


class TableBlocks(Blocks):
    """The rows of files of tables, in the order of the files.

    Args:
        columns: The columns that are read.
        places: For each block, its file, and the number of its first row there.
        rows: For each block, the number of its rows.
    """

    def __init__(self, columns: FileColumns, places: list[Where], rows: list[int]) -> None:
        self.columns, self.places = columns, places
        self.structure = columns.structure
        self.ends = np.cumsum(rows, dtype=np.int64)
        example = sum(int(np.prod(leaf.shape)) * leaf.kind.itemsize for leaf in leaves_of(self.structure))
        self.together = max(1, min(_ROWS, _BYTES // max(example, 1)))

    @abstractmethod
    def tables(self, block: int) -> Iterator[tuple[Any, Where]]:
        """Read a block: tables of ``together`` rows at most, and their places.

        Raises:
            ArgumentError: The file has changed or is damaged.
        """

    def pieces(self, block: int) -> Iterator[list[Array]]:
        """Decode a block."""
        for table, where in self.tables(block):
            yield self.columns.arrays(table, where)

    @property
    def encoded(self) -> Blocks:
        """The rows with images as bytes."""
        return _EncodedTable(self) if self.columns.images else self

    def decoded(self, arrays: list[Array], indices: Array) -> list[Array]:
        """Decode the images of rows."""
        return self.columns.decoded(arrays, lambda row: self.place(int(indices[row])))

    def decoded_in_graph(self, parts: list[Any]) -> list[Any]:
        """Decode the images of rows in a graph."""
        return self.columns.decoded_in_graph(parts)

    def place(self, index: int) -> Where:
        """Return the place of an example."""
        block = int(np.searchsorted(self.ends, index, side="right"))
        place = self.places[block]
        return Where(place.path, place.row + index - self.first(block))


class _EncodedTable(Blocks):
    def __init__(self, source: TableBlocks) -> None:
        self._source = source
        self.structure, self.ends = source.columns.encoded_structure, source.ends

    def pieces(self, block: int) -> Iterator[list[Array]]:
        for table, where in self._source.tables(block):
            yield self._source.columns.encoded(table, where)

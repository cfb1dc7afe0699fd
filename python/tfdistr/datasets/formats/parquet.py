"""Parquet files: a block is a row group. pyarrow reads the wanted columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfdistr._utils.optional_imports import parquet
from tfdistr.datasets.formats.blocks import Array, Blocks
from tfdistr.datasets.formats.columns import Columns, Wanted, Where
from tfdistr.datasets.formats.paths import open_all
from tfdistr.datasets.formats.said import damaged, said
from tfdistr.errors import ArgumentError

#: Rows that are decoded at once.
_ROWS = 65_536


class ParquetBlocks(Blocks):
    """The rows of Parquet files, in the order of the files.

    Args:
        files: The paths.
        sizes: The sizes of the files, if they were described before; else an empty sequence.
        wanted: The columns.

    Raises:
        ArgumentError: A file is damaged or has changed, a column is not in it or has another type, or a value
            is missing, as far as the statistics of the file say.
    """

    def __init__(self, files: Sequence[str], sizes: Sequence[int], wanted: Wanted) -> None:
        self._files = open_all(files, sizes)
        self._metadata: list[Any] = []
        rows: list[int] = []
        self._places: list[tuple[int, int, int]] = []  # file, row group, first row in the file
        for number, file in enumerate(self._files):
            opened = _open(file.path)
            metadata, schema = opened.metadata, opened.schema_arrow
            opened.close()
            if not number:
                self._columns = Columns(schema, file.path, wanted)
            self._columns.check(schema, file.path)
            self._metadata.append(metadata)
            first = 0
            for group in range(metadata.num_row_groups):
                count = metadata.row_group(group).num_rows
                self._places.append((number, group, first))
                rows.append(count)
                first += count
        self.structure = self._columns.structure
        self.ends = np.cumsum(rows, dtype=np.int64)

    def check(self) -> None:
        """Look for missing values that the statistics of a row group tell of."""
        for block, (number, group, _) in enumerate(self._places):
            chunks = self._metadata[number].row_group(group)
            for place in range(chunks.num_columns):
                chunk = chunks.column(place)
                name = chunk.path_in_schema
                known = chunk.statistics if name in self._columns.names else None
                if known and known.null_count and self._columns.missing_is_error(name):
                    for _ in self.pieces(block):  # the value is found where it is read
                        pass

    def pieces(self, block: int) -> Iterator[list[Array]]:
        """Decode a row group."""
        pyarrow, _ = _import()
        number, group, first = self._places[block]
        file = self._files[number]
        file.check()
        row = first
        try:
            opened = _open(file.path, self._metadata[number])
            with opened:
                for batch in opened.iter_batches(_ROWS, [group], self._columns.names):
                    yield self._columns.arrays(batch, Where(file.path, row))
                    row += batch.num_rows
        except (pyarrow.ArrowException, OSError) as error:
            raise _damaged(f"{file.path}, from row {row} on", error) from error


def _import() -> tuple[Any, Any]:
    return parquet('load_dataset("parquet")')


def _open(path: str, metadata: Any = None) -> Any:
    pyarrow, files = _import()
    try:
        return files.ParquetFile(path, metadata=metadata)
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(where: str, error: Exception) -> ArgumentError:
    return damaged("Parquet files", f"{where}: {said(error)}")


def open_parquet(files: Any, sizes: Any, options: Mapping[str, Any]) -> ParquetBlocks:
    """Open the files that are described."""
    return ParquetBlocks(files, sizes, Wanted(**options))

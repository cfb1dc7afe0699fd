"""Files of tables, which pyarrow reads.

In Arrow files, also Hugging Face data sets, a block is a record batch, mapped into memory. In Parquet files
it is a row group, of which the wanted columns are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfdistr.data.readers.columns import FileColumns, TableBlocks, Wanted, Where
from tfdistr.data.readers.paths import damaged, first_line, open_all
from tfdistr.errors import ArgumentError
from tfdistr.utils.packages import parquet

#: Number of images that are checked before a job starts.
_LOOKED_AT = 32
_PARQUET = 'load_dataset("parquet")'


class ArrowBlocks(TableBlocks):
    """The rows of Arrow files (IPC, as files or as streams), in the order of the files."""

    def __init__(self, files: Sequence[str], sizes: Sequence[int], **wanted: Any) -> None:
        self._files = open_all(files, sizes)
        opened = [(number, file.path, _map(file.path)) for number, file in enumerate(self._files)]

        def first(name: str) -> tuple[Where, Any] | None:
            return next(
                ((Where(path, 0), table.column(name)[:1]) for _, path, table in opened if len(table)), None
            )

        columns = FileColumns(opened[0][2].schema, files[0], Wanted(**wanted), first)
        self._batches: list[tuple[int, Any]] = []  # file, record batch
        places = []
        for number, path, table in opened:
            columns.check(table.schema, path)
            row = 0
            for batch in table.select(columns.names).to_batches():
                self._batches.append((number, batch))
                places.append(Where(path, row))
                row += batch.num_rows
        super().__init__(columns, places, [batch.num_rows for _, batch in self._batches])

    def check(self) -> None:
        """Check for missing values, whose numbers are in the files, and decode some of the images."""
        for (_, batch), where in zip(self._batches, self.places, strict=True):
            for name in self.columns.names:
                if batch.column(name).null_count and self.columns.missing_is_error(name):
                    self.columns.encoded(batch, where)
        if self.columns.images:
            for index in np.linspace(0, len(self) - 1, min(_LOOKED_AT, len(self)), dtype=int).tolist():
                block = int(np.searchsorted(self.ends, index, side="right"))
                row = self._batches[block][1].slice(index - self.first(block), 1)
                self.columns.arrays(row, self.place(index))

    def tables(self, block: int) -> Iterator[tuple[Any, Where]]:
        """Take a record batch from the mapped file."""
        (number, batch), place = self._batches[block], self.places[block]
        self._files[number].check()
        for first in range(0, batch.num_rows, self.together):
            yield batch.slice(first, self.together), Where(place.path, place.row + first)


def _map(path: str) -> Any:
    pyarrow, _ = parquet('load_dataset("arrow")')
    try:
        mapped = pyarrow.memory_map(path)
        try:
            return pyarrow.ipc.open_file(mapped).read_all()
        except pyarrow.ArrowInvalid:  # Hugging Face data sets are streams
            mapped.seek(0)
            return pyarrow.ipc.open_stream(mapped).read_all()
    except (pyarrow.ArrowException, OSError) as error:
        raise damaged("Arrow files", f"{path}: {first_line(error)}") from error


class ParquetBlocks(TableBlocks):
    """The rows of Parquet files, in the order of the files.

    Args:
        wanted: The columns; see ``Wanted``.

    Raises:
        ArgumentError: A file is damaged or has changed, a column is not in it or has another type, or a value
            is missing, as far as the statistics of the file say.
    """

    def __init__(self, files: Sequence[str], sizes: Sequence[int], **wanted: Any) -> None:
        self._files = open_all(files, sizes)
        described = [_metadata_of(path) for path in files]
        self._metadata = [metadata for metadata, _ in described]
        self._groups: list[tuple[int, int]] = []  # file, row group
        places: list[Where] = []
        rows: list[int] = []
        columns = FileColumns(described[0][1], files[0], Wanted(**wanted), self._first)
        for number, (metadata, schema) in enumerate(described):
            columns.check(schema, files[number])
            first = 0
            for group in range(metadata.num_row_groups):
                count = metadata.row_group(group).num_rows
                self._groups.append((number, group))
                places.append(Where(files[number], first))
                rows.append(count)
                first += count
        super().__init__(columns, places, rows)

    def check(self) -> None:
        """Check for missing values in the statistics of the row groups."""
        for block, (number, group) in enumerate(self._groups):
            chunks = self._metadata[number].row_group(group)
            for place in range(chunks.num_columns):
                chunk = chunks.column(place)
                name = chunk.path_in_schema
                known = chunk.statistics if name in self.columns.names else None
                if known and known.null_count and self.columns.missing_is_error(name):
                    for table, where in self.tables(block):  # the value is found where it is read
                        self.columns.encoded(table, where)

    def tables(self, block: int) -> Iterator[tuple[Any, Where]]:
        """Read a row group."""
        number, group = self._groups[block]
        file, row = self._files[number], self.places[block].row
        file.check()
        for batch in _read(file.path, self._metadata[number], group, self.columns.names, row, self.together):
            yield batch, Where(file.path, row)
            row += batch.num_rows

    def _first(self, name: str) -> tuple[Where, Any] | None:
        for file, metadata in zip(self._files, self._metadata, strict=True):
            for group in range(metadata.num_row_groups):
                for batch in _read(file.path, metadata, group, [name], 0, 1):
                    return Where(file.path, 0), batch.column(name)
        return None


def _metadata_of(path: str) -> tuple[Any, Any]:
    with _open(path) as opened:
        return opened.metadata, opened.schema_arrow


def _read(
    path: str, metadata: Any, group: int, names: Sequence[str], row: int, together: int
) -> Iterator[Any]:
    pyarrow, _ = parquet(_PARQUET)
    try:
        with _open(path, metadata) as opened:
            for batch in opened.iter_batches(together, [group], names):
                yield batch
                row += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(f"{path}, from row {row} on", error) from error


def _open(path: str, metadata: Any = None) -> Any:
    pyarrow, files = parquet(_PARQUET)
    try:
        return files.ParquetFile(path, metadata=metadata)
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(where: str, error: Exception) -> ArgumentError:
    return damaged("Parquet files", f"{where}: {first_line(error)}")

"""Parquet files: a block is a row group. pyarrow reads the wanted columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfdistr.data.readers.columns import FileColumns, TableBlocks, Wanted, Where
from tfdistr.data.readers.paths import damaged, first_line, open_all
from tfdistr.errors import ArgumentError
from tfdistr.utils.packages import parquet


class ParquetBlocks(TableBlocks):
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
        described = [_metadata_of(path) for path in files]
        self._metadata = [metadata for metadata, _ in described]
        self._groups: list[tuple[int, int]] = []  # file, row group
        places: list[Where] = []
        rows: list[int] = []
        columns = FileColumns(described[0][1], files[0], wanted, self._first)
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
    pyarrow, _ = _import()
    try:
        with _open(path, metadata) as opened:
            for batch in opened.iter_batches(together, [group], names):
                yield batch
                row += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(f"{path}, from row {row} on", error) from error


def _import() -> tuple[Any, Any]:
    return parquet('load_dataset("parquet")')


def _open(path: str, metadata: Any = None) -> Any:
    pyarrow, files = _import()
    try:
        return files.ParquetFile(path, metadata=metadata)
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(where: str, error: Exception) -> ArgumentError:
    return damaged("Parquet files", f"{where}: {first_line(error)}")


def open_parquet(files: Any, sizes: Any, options: Mapping[str, Any]) -> ParquetBlocks:
    """Open the files that are described."""
    return ParquetBlocks(files, sizes, Wanted(**options))

"""Files of tables, which pyarrow reads: a block is a row group, a record batch, or a text file.

Random rows do not come from ``take`` of ``pyarrow.dataset``: in each step it decodes all row groups that they
touch, where ``data/pipeline/file_examples.py`` decodes a row once. Its scanner decodes a row group as one
table, and starts threads.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from tfdistr.data.readers.blocks import Blocks, Leaf, some_of
from tfdistr.data.readers.columns import FileColumns, Wanted, Where, classes_of
from tfdistr.data.readers.paths import File, damaged, first_line, open_all
from tfdistr.data.trees import Array
from tfdistr.errors import ArgumentError
from tfdistr.utils.packages import parquet

#: Rows that are decoded at once, at most, and the bytes that they may take.
_ROWS, _BYTES = 65_536, 64 * 1024 * 1024


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of a file.

    Attributes:
        read: Yields record batches of some columns, with at most so many rows.
        lacking: Returns the columns of which a value is missing, as far as the file says it.
    """

    count: int
    read: Callable[[Sequence[str], int], Iterator[Any]]
    lacking: Callable[[], Iterable[str]] = tuple


class Tables(Blocks):
    """The rows of files of tables, in the order of the files."""

    format: ClassVar[str]

    def __init__(self, files: Sequence[str], sizes: Sequence[int], **wanted: Any) -> None:
        parquet(f'load_dataset("{self.format}")')
        self._files = open_all(files, sizes)
        self._blocks: list[tuple[File, Where, Rows]] = []
        schemas = []
        for file in self._files:
            with self._errors(file.path):
                schema, parts = self.open(file.path)
            schemas.append(schema)
            first = 0
            for rows in parts:
                self._blocks.append((file, Where(file.path, first), rows))
                first += rows.count
        self._wanted = Wanted(**wanted)
        self.columns = FileColumns(schemas[0], files[0], self._wanted, self._first)
        for schema, path in zip(schemas, files, strict=True):
            self.columns.check(schema, path)
        self.structure = self.columns.structure
        self.ends = np.cumsum([rows.count for *_, rows in self._blocks], dtype=np.int64)
        example = sum(leaf.nbytes for leaf in self.leaves)
        self._together = max(1, min(_ROWS, _BYTES // max(example, 1)))

    @abstractmethod
    def open(self, path: str) -> tuple[Any, list[Rows]]:
        """Open a file: its schema, and its rows in the order of the blocks."""

    def refuse(self, received: str) -> ArgumentError:
        return damaged(f"{self.format.capitalize()} files", received)

    @property
    def columns_of_inputs(self) -> tuple[str, ...]:
        return self.columns.features

    @property
    def stored(self) -> list[Leaf]:
        return self.columns.stored

    def classes(self) -> dict[str, tuple[str, ...]]:
        columns, first = self.columns.columns, self._files[0].path
        return {
            path: classes_of(name, first, self._texts(name))
            for name, path in self._wanted.targets().items()
            if columns[name].form.is_text
        }

    def _texts(self, name: str) -> Iterator[Array]:
        for block in range(len(self._blocks)):
            for table, where in self._read(block, [name], self._together):
                yield self.columns.columns[name].array(table, where)

    def check(self) -> None:
        """Check for missing values of which the files tell."""
        for block, (*_, rows) in enumerate(self._blocks):
            for name in rows.lacking():
                column = self.columns.columns.get(name)
                if column and column.missing_is_error:  # it is found where it is read
                    for table, where in self._read(block, [name], self._together):
                        column.array(table, where)

    def pieces(self, block: int) -> Iterator[list[Array]]:
        for table, where in self._read(block, list(self.columns.columns), self._together):
            yield self.columns.arrays(table, where)

    def decoded(self, arrays: list[Array], indices: Array) -> list[Array]:
        return self.columns.decoded(arrays, lambda row: self.place(int(indices[row])))

    def decoded_in_graph(self, parts: list[object]) -> list[Any]:
        return self.columns.decoded_in_graph(parts)

    def _read(self, block: int, names: Sequence[str], most: int) -> Iterator[tuple[Any, Where]]:
        """Read columns of a block: record batches, and their places."""
        file, (path, row), rows = self._blocks[block]
        file.check()
        with self._errors(self._from_row(path, row)):
            for batch in rows.read(names, most):
                yield batch, Where(path, row)
                row += batch.num_rows

    def _first(self, name: str) -> tuple[Where, Any] | None:
        for block, (*_, rows) in enumerate(self._blocks):
            if rows.count:
                table, where = next(self._read(block, [name], 1))
                return where, table.column(0)
        return None

    def place(self, index: int) -> Where:
        block = int(np.searchsorted(self.ends, index, side="right"))
        _, (path, row), _ = self._blocks[block]
        return Where(path, row + index - self.first(block))

    @staticmethod
    def _from_row(path: str, row: int) -> str:
        return f"{path}, from row {row} on"

    @contextlib.contextmanager
    def _errors(self, where: str) -> Iterator[None]:
        """Replace pyarrow's errors by the error for a file."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise self.refuse(f"{where}: {first_line(error)}") from error


class ParquetTables(Tables):
    """The rows of Parquet files: a block is a row group."""

    format = "parquet"

    def open(self, path: str) -> tuple[Any, list[Rows]]:
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
        parts = []
        for group in range(metadata.num_row_groups):
            read = partial(self._row_group, path, metadata, group)
            parts.append(Rows(metadata.row_group(group).num_rows, read, partial(_lacking, metadata, group)))
        return schema, parts

    @staticmethod
    def _row_group(path: str, metadata: object, group: int, names: Sequence[str], most: int) -> Iterator[Any]:
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path, metadata=metadata) as file:
            yield from file.iter_batches(most, [group], names)


def _lacking(metadata: Any, group: int) -> Iterator[str]:
    chunks = metadata.row_group(group)
    for place in range(chunks.num_columns):
        chunk = chunks.column(place)
        if chunk.statistics and chunk.statistics.null_count:
            yield chunk.path_in_schema


class ArrowTables(Tables):
    """The rows of Arrow files (IPC files or streams), mapped into memory: a block is a record batch."""

    format = "arrow"

    def open(self, path: str) -> tuple[Any, list[Rows]]:
        import pyarrow as pa

        mapped = pa.memory_map(path)
        try:
            table = pa.ipc.open_file(mapped).read_all()
        except pa.ArrowInvalid:  # Hugging Face data sets are streams
            mapped.seek(0)
            table = pa.ipc.open_stream(mapped).read_all()
        batches = table.to_batches()
        return table.schema, [
            Rows(batch.num_rows, partial(_slices, batch), partial(_with_nulls, batch)) for batch in batches
        ]

    def check(self) -> None:
        """Check for missing values, whose numbers are in the files, and decode some of the images."""
        super().check()
        if self.columns.has_images:
            for index in some_of(len(self)):
                block = int(np.searchsorted(self.ends, index, side="right"))
                (table, _), *_ = self._read(block, list(self.columns.columns), len(self))
                row = table.slice(index - self.first(block), 1)
                self.decoded(self.columns.arrays(row, self.place(index)), np.array([index]))


def _slices(batch: Any, names: Sequence[str], most: int) -> Iterator[Any]:
    chosen = batch.select(names)
    return (chosen.slice(first, most) for first in range(0, batch.num_rows, most))


def _with_nulls(batch: Any) -> list[str]:
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return [name for name, column in columns if column.null_count]


#: The types that may follow a type of text files, when a value does not fit; those that are tried at first.
_WIDER = {
    "int64": ("double", "string"),
    "double": ("string",),
    "bool": ("string",),
    "string": (),
    None: ("int64", "double", "bool", "string"),
}


class CsvTables(Tables):
    """The rows of text files, such as CSV: a block is a file, which is read from its start.

    The position of a row is not known before all earlier rows are read. So the files are read once when they
    are described, for their types and the number of their rows. Then the workers decode each file once, and
    keep its rows.

    Args:
        types: The type of each column; see ``scan``.
    """

    format = "csv"
    only_once = True

    def __init__(
        self, files: Sequence[str], sizes: Sequence[int], *, delimiter: str, types: Mapping[str, str],
        rows: Sequence[int], target: Any = None, **wanted: object,
    ) -> None:  # fmt: skip
        self._delimiter, self._types = delimiter, types
        targets = Wanted(None, target).targets()
        self._classes = [name for name in targets if types.get(name) == "string"]
        self._rows = dict(zip(files, rows, strict=True))
        super().__init__(files, sizes, target=target, **wanted)

    def open(self, path: str) -> tuple[Any, list[Rows]]:
        schema = _schema(self._types)
        read = partial(_text_rows, path, self._delimiter, schema, classes=self._classes)
        return schema, [Rows(self._rows[path], read)]

    def refuse(self, received: str) -> ArgumentError:
        return _not_text(received)

    @staticmethod
    def _from_row(path: str, row: int) -> str:
        return path  # pyarrow's error has the row


def scan(files: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Read text files once: the options with the types of the columns, and the number of rows of each file.

    A column has the first of the types int64, double, bool and string that all its values have. pyarrow would
    take the types from the first block of each file.
    """
    pyarrow, _ = parquet('load_dataset("csv")')
    wanted = Wanted(**{name: options[name] for name in ("features", "target", "fill", "matrix")})
    found: dict[str, str | None] = {}
    missing: dict[str, Where] = {}
    rows = []
    for path in files:
        row = 0
        try:
            with _reader(path, options["delimiter"]) as reader:
                schema = _schema(dict.fromkeys(reader.schema.names, "string"))
            if not found:
                read = FileColumns(schema, path, Wanted(wanted.features, wanted.target, matrix=False))
                found = dict.fromkeys(read.columns)
            read.check(schema, path)
            for batch in _text_rows(path, options["delimiter"], schema, list(found), with_missing=True):
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    found[name] = _widened(column, found[name])
                    if column.null_count and name not in missing:
                        missing[name] = Where(path, row + int(np.flatnonzero(column.is_null())[0]))
                row += batch.num_rows
        except (pyarrow.ArrowException, OSError) as error:
            raise _not_text(f"{path}: {first_line(error)}") from error
        rows.append(row)
    types = {name: kind or "string" for name, kind in found.items()}
    columns = FileColumns(_schema(types), files[0], wanted).columns
    for name, where in missing.items():
        if types[name] != "string" and columns[name].missing_is_error:
            raise columns[name].missing(where)
    return {**options, "types": types, "rows": tuple(rows)}


def _widened(column: Any, kind: str | None) -> str | None:
    """Return the type of a column of text that also has the values of ``column``; None if all are missing."""
    import pyarrow as pa
    from pyarrow import compute

    if column.null_count == len(column):
        return kind
    values = compute.utf8_trim_whitespace(column)
    for wider in (kind, *_WIDER[kind]):
        if wider is not None:
            with contextlib.suppress(pa.ArrowException):
                values.cast(wider)
                return wider
    return "string"


def _text_rows(
    path: str, delimiter: str, schema: Any, names: Sequence[str], most: int = 0, with_missing: bool = False,
    classes: Sequence[str] = (),
) -> Iterator[Any]:  # fmt: skip
    """Read columns of a text file; ``with_missing`` if text may be missing, which that of classes may be."""
    types = {name: schema.field(name).type for name in names}
    with _reader(path, delimiter, column_types=types, include_columns=names,
                 strings_can_be_null=with_missing) as reader:  # fmt: skip
        for batch in reader:
            yield _without_text(batch, [name for name in classes if name in names])


def _without_text(batch: Any, names: Sequence[str]) -> Any:
    """Return rows where text such as NA is a missing value of these columns, as in columns of numbers."""
    import pyarrow as pa
    from pyarrow import compute, csv

    missing = pa.array(csv.ConvertOptions().null_values)
    for name in names:
        values = compute.if_else(compute.is_in(batch[name], missing), None, batch[name])
        batch = batch.set_column(batch.schema.names.index(name), name, values)
    return batch


def _reader(path: str, delimiter: str, **convert: object) -> Any:
    from pyarrow import csv

    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(use_threads=False),  # then an error has the number of its row
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=csv.ConvertOptions(**convert),
    )


def _schema(types: Mapping[str, str]) -> Any:
    import pyarrow as pa

    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in types.items()])


def _not_text(received: str) -> ArgumentError:
    return ArgumentError(
        "`files` must be text with the same number of values in each row, and the names in the first row.",
        received=received,
        fix="Correct the file, or pass delimiter=';', for example.",
    )

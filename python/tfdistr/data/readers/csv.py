"""Text files of rows, such as CSV: a block is a file, which pyarrow reads from its start.

The position of a row is not known before all earlier rows are read. So the files are read once when they are
described, for their types and the number of their rows. Then the workers decode each file once, and keep its
rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfdistr.data.readers.blocks import Array, Blocks
from tfdistr.data.readers.columns import FileColumns, Wanted, Where
from tfdistr.data.readers.paths import first_line, open_all
from tfdistr.errors import ArgumentError
from tfdistr.utils.packages import csv_and_compute

#: The types that the values of a column may have, in the order in which they are tried.
_TYPES = ("int64", "double", "bool", "string")
#: The types that may follow a type, when a value does not fit.
_WIDER = {"int64": ("double", "string"), "double": ("string",), "bool": ("string",), "string": ()}


class CsvBlocks(Blocks):
    """The rows of text files, in the order of the files.

    Args:
        types: The type of each column; see ``scan``.
        wanted: The columns; see ``Wanted``.
    """

    only_once = True

    def __init__(
        self, files: Sequence[str], sizes: Sequence[int], *, delimiter: str, types: Mapping[str, str],
        rows: Sequence[int], **wanted: Any,
    ) -> None:  # fmt: skip
        pyarrow, *_ = _import()
        self._files, self._delimiter, self._rows = open_all(files, sizes), delimiter, rows
        self._types = {name: _type(pyarrow, kind) for name, kind in types.items()}
        self._columns = FileColumns(pyarrow.schema(list(self._types.items())), files[0], Wanted(**wanted))
        self.structure = self._columns.structure
        self.ends = np.cumsum(rows, dtype=np.int64)

    def pieces(self, block: int) -> Iterator[list[Array]]:
        """Decode a file."""
        file = self._files[block]
        file.check()
        row = 0
        types = {name: self._types[name] for name in self._columns.names}
        for batch in _read(file.path, self._delimiter, types):
            yield self._columns.arrays(batch, Where(file.path, row))
            row += batch.num_rows


def scan(files: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Read files once: the options with the types of the columns, and the number of rows of each file.

    A column has the first of the types int64, double, bool and string that all its values have.

    Raises:
        ArgumentError: A file is damaged, a column is not in it, or a value is missing.
    """
    pyarrow, *_ = _import()
    wanted = Wanted(**{name: options[name] for name in ("features", "target", "fill", "matrix")})
    delimiter = options["delimiter"]
    found: dict[str, str | None] = {}
    missing: dict[str, Where] = {}
    rows = []
    for path in files:
        names = _names(path, delimiter)
        schema = pyarrow.schema([(name, pyarrow.string()) for name in names])
        if not found:
            read = FileColumns(schema, path, Wanted(wanted.features, wanted.target, matrix=False))
            found = dict.fromkeys(read.names)
        read.check(schema, path)
        row = 0
        for batch in _read(path, delimiter, dict.fromkeys(found, pyarrow.string()), with_missing=True):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                found[name] = _widened(pyarrow, column, found[name])
                if column.null_count and name not in missing:
                    missing[name] = Where(path, row + int(np.flatnonzero(column.is_null())[0]))
            row += batch.num_rows
        rows.append(row)
    types = {name: kind or "string" for name, kind in found.items()}
    columns = FileColumns(
        pyarrow.schema([(n, _type(pyarrow, kind)) for n, kind in types.items()]), files[0], wanted
    )
    for name, where in missing.items():
        if types[name] != "string" and columns.missing_is_error(name):
            raise columns.missing(name, where)
    return {**options, "types": types, "rows": tuple(rows)}


def _widened(pyarrow: Any, column: Any, kind: str | None) -> str | None:
    """Return the type of a column of text that also has the values of ``column``; None if all are missing."""
    if column.null_count == len(column):
        return kind
    _, _, compute = _import()
    values = compute.utf8_trim_whitespace(column)
    for wider in _TYPES if kind is None else (kind, *_WIDER[kind]):
        try:
            values.cast(_type(pyarrow, wider))
        except pyarrow.ArrowException:
            continue
        return wider
    return "string"


def _names(path: str, delimiter: str) -> list[str]:
    with _reader(path, delimiter) as reader:
        names: list[str] = reader.schema.names
    return names


def _read(path: str, delimiter: str, types: Mapping[str, Any], with_missing: bool = False) -> Iterator[Any]:
    pyarrow, *_ = _import()
    with _reader(path, delimiter, types, with_missing) as reader:
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except (pyarrow.ArrowException, OSError) as error:
                raise _damaged(path, error) from error
            yield batch


def _reader(
    path: str, delimiter: str, types: Mapping[str, Any] | None = None, with_missing: bool = False
) -> Any:
    pyarrow, module, _ = _import()
    convert = module.ConvertOptions(
        column_types=types, include_columns=list(types or ()), strings_can_be_null=with_missing
    )
    try:
        return module.open_csv(
            path,
            read_options=module.ReadOptions(use_threads=False),  # then an error has the number of its row
            parse_options=module.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=convert,
        )
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _type(pyarrow: Any, kind: str) -> Any:
    return {"int64": pyarrow.int64(), "double": pyarrow.float64(), "bool": pyarrow.bool_()}.get(
        kind, pyarrow.string()
    )


def _import() -> tuple[Any, Any, Any]:
    return csv_and_compute('load_dataset("csv")')


def _damaged(path: str, error: Exception) -> ArgumentError:
    return ArgumentError(
        "`files` must be text with the same number of values in each row, and the names in the first row.",
        received=f"{path}: {first_line(error)}",
        fix="Correct the file, or pass delimiter=';', for example.",
    )

"""Arrow tables and columns in memory: tables are treated as data frames.

Libraries give each other such data without a copy (https://arrow.apache.org/docs/format/CDataInterface.html).
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from tfdistr.data.readers.column_forms import form_of, numbers_of, shape_of, uneven_lists, values_of
from tfdistr.errors import ArgumentError
from tfdistr.utils.packages import parquet


def from_arrow(value: Any, name: str) -> Any:
    """Return an Arrow table as a ``pyarrow.Table``, a column as a ``pyarrow.ChunkedArray``, else None.

    A stream is read to its end, once.

    Args:
        value: Any object. It is an Arrow object if it has the methods of Arrow's C interface, as those of
            pyarrow, polars, nanoarrow and duckdb. pandas objects have them, but are not treated so.

    Raises:
        ArgumentError: pyarrow is not installed, or it cannot read the object.
    """
    of_column, of_stream = (hasattr(value, f"__arrow_c_{what}__") for what in ("array", "stream"))
    if not (of_column or of_stream) or type(value).__module__.partition(".")[0] == "pandas":
        return None
    kind = f"class {type(value).__module__}.{type(value).__name__}"
    pyarrow, _ = parquet(f"`{name}` of {kind}")
    if isinstance(value, pyarrow.Table | pyarrow.ChunkedArray):
        return value
    try:
        column = pyarrow.chunked_array(value if of_stream else [pyarrow.array(value)])
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise ArgumentError(
            f"`{name}` must be a table or a column that is readable through Arrow's C interface.",
            received=f"{'a stream' if isinstance(value, _Stream) else f'an object of {kind}'}: {error}",
            fix="Pass a stream that was not read before, or convert it to a data frame or arrays.",
        ) from error
    is_table = pyarrow.types.is_struct(column.type)
    return pyarrow.Table.from_struct_array(column) if is_table else column


class _Stream:
    """An Arrow stream in the memory of another language; see ``from_address``."""

    _NAME = b"arrow_array_stream"  # a capsule does not copy its name

    def __init__(self, address: int) -> None:
        self._address = address

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(self._address, self._NAME, None)


def from_address(address: str, name: str) -> Any:
    """Read an Arrow stream in this process to its end, as ``from_arrow`` does.

    Args:
        address: The address of the stream, an ``ArrowArrayStream``, as a whole number in text. The stream is
            released here.
    """
    return from_arrow(_Stream(int(address)), name)


def is_table(value: Any) -> bool:
    """Return whether a value is a ``pyarrow.Table``."""
    pyarrow = sys.modules.get("pyarrow")  # it has been imported where there is a table
    return pyarrow is not None and isinstance(value, pyarrow.Table)


def is_column(value: Any) -> bool:
    """Return whether a value is a ``pyarrow.ChunkedArray``."""
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(value, pyarrow.ChunkedArray)


def array_of(column: Any, name: str, of_table: str | None = None) -> np.ndarray[Any, Any]:
    """Return a column as an array.

    Args:
        name: The name of the column or of its table for the user.
        of_table: The name of the column in its table; None for a column without a table.

    Raises:
        ArgumentError: A value is missing, or TensorFlow has no such type.
    """
    where = f"`{name}`" if of_table is None else f"column {of_table!r} of `{name}`"
    form = form_of(column.type, where)
    if form.is_image:
        raise ArgumentError(
            "Images must be in files: each worker reads those that it uses.",
            received=f"{where}: images",
            fix='Write the table to an Arrow file, and pass load_dataset("arrow", files="images.arrow").',
        )

    def refuse(row: int, what: str | None) -> ArgumentError:
        place = f"row {row} of `{name}`"
        if of_table is not None:
            place = f"column {of_table!r} in {place}"
        if what is None:
            return ArgumentError(
                "A column must have a value in each row.",
                received=f"no value {'in' if of_table is None else 'of'} {place}",
                fix="Fill in or drop what is missing: pyarrow.compute.fill_null(column, 0), for example.",
            )
        return uneven_lists(f"{place}: {what}")

    values = values_of(column)
    return numbers_of(values, shape_of(form, values, refuse), refuse)


def refuse_dataset(value: Any, name: str) -> None:
    """Refuse a pyarrow or Hugging Face data set, whose files ``load_dataset()`` reads."""
    fixes = {
        "pyarrow.dataset": 'load_dataset("parquet", files=dataset.files, target="y"), or its to_table()',
        "datasets": 'load_dataset("arrow", files="data", target="y") after its save_to_disk("data")',
    }
    for module, instead in fixes.items():
        loaded = sys.modules.get(module)
        kinds = (getattr(loaded, kind, ()) for kind in ("Dataset", "DatasetDict", "IterableDataset"))
        if any(isinstance(value, kind) for kind in kinds):
            raise ArgumentError(
                f"`{name}` must be a table in memory, or files by their names.",
                received=f"an object of class {type(value).__module__}.{type(value).__name__}",
                fix=f"Pass {instead}.",
            )

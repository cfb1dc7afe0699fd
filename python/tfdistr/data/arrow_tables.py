"""Tables of Arrow in memory, which are treated as data frames."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tfdistr.datasets.formats.columns import kind_of
from tfdistr.errors import ArgumentError


def is_table(value: Any) -> bool:
    """Whether a value is a ``pyarrow.Table`` or a ``pyarrow.RecordBatch``."""
    pyarrow = sys.modules.get("pyarrow")  # it has been imported where there is a table
    return pyarrow is not None and isinstance(value, pyarrow.Table | pyarrow.RecordBatch)


def column_of(table: Any, column: str, name: str) -> np.ndarray[Any, Any]:
    """Return a column of a table.

    Args:
        table: A ``pyarrow.Table`` or a ``pyarrow.RecordBatch``.
        column: The name of the column.
        name: The name of the table for the user.

    Raises:
        ArgumentError: A value is missing, or TensorFlow has no such type.
    """
    import pyarrow as pa

    kind = kind_of(table.schema.field(column), name)
    values = table.column(column)
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    inner = values.flatten() if kind.shape else values
    if values.null_count or inner.null_count:
        missing = values if values.null_count else inner
        row = int(np.flatnonzero(missing.is_null())[0]) // (1 if values.null_count else kind.shape[0])
        raise ArgumentError(
            "A column must have a value in each row.",
            received=f"no value of column {column!r} in row {row} of `{name}`",
            fix="Fill in or drop what is missing: pyarrow.compute.fill_null(column, 0), for example.",
        )
    if pa.types.is_dictionary(inner.type):
        inner = inner.cast(inner.type.value_type)
    found: np.ndarray[Any, Any] = inner.to_numpy(zero_copy_only=False)
    return found.reshape(len(values), *kind.shape)


def refuse_dataset(value: Any, name: str) -> None:
    """Refuse a ``pyarrow.dataset.Dataset``, whose files ``load_dataset()`` reads.

    Raises:
        ArgumentError: It is one.
    """
    module = sys.modules.get("pyarrow.dataset")
    if module is not None and isinstance(value, module.Dataset):
        raise ArgumentError(
            f"`{name}` must be a table in memory, or files by their names.",
            received=f"an object of class {type(value).__module__}.{type(value).__name__}",
            fix='Pass load_dataset("parquet", files=dataset.files, target="y"), or its to_table().',
        )

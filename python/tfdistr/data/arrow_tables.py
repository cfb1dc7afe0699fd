"""Tables of Arrow in memory, which are treated as data frames."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tfdistr.datasets.formats.forms import form_of, numbers_of, shape_of, uneven_lists, values_of
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
    form = form_of(table.schema.field(column), name)
    if form.is_image:
        raise ArgumentError(
            "Images must be in files, from which each worker reads those that it uses.",
            received=f"column {column!r} of `{name}`: images",
            fix='Write the table to an Arrow file, and pass load_dataset("arrow", files="images.arrow").',
        )

    def refuse(row: int, what: str | None) -> ArgumentError:
        if what is None:
            return ArgumentError(
                "A column must have a value in each row.",
                received=f"no value of column {column!r} in row {row} of `{name}`",
                fix="Fill in or drop what is missing: pyarrow.compute.fill_null(column, 0), for example.",
            )
        return uneven_lists(f"column {column!r} in row {row} of `{name}`: {what}")

    values = values_of(table.column(column))
    return numbers_of(values, shape_of(form, values, refuse), refuse)


def refuse_dataset(value: Any, name: str) -> None:
    """Refuse a data set of pyarrow or of Hugging Face, whose files ``load_dataset()`` reads.

    Raises:
        ArgumentError: It is one.
    """
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

"""The columns of a table of Arrow as arrays of a model: treated as those of a data frame.

All features that are numbers become one matrix, as those of a data frame do (``data/source.py``). Otherwise
the features are a dictionary of columns. Text is text, a category is its text, and a list of fixed size is a
row of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfdistr.datasets.formats.blocks import Array, Leaf
from tfdistr.errors import ArgumentError

_TEXT = np.dtype(object)


@dataclass(frozen=True)
class Wanted:
    """What the user asked for.

    Attributes:
        features: Names of the columns of ``x``; None for all columns but the targets.
        target: Name of the column of ``y``, a list of names, or None for examples without ``y``.
        fill: What stands for a missing value: a value for all columns, or a dictionary by column; None if a
            missing value is an error.
        matrix: Whether several columns become one matrix; None for a matrix if all are numbers.
    """

    features: tuple[str, ...] | None
    target: str | tuple[str, ...] | None
    fill: Any = None
    matrix: bool | None = None


@dataclass(frozen=True)
class Where:
    """The place of rows, for errors: a file, and the number of the first row in it."""

    path: str
    row: int


class Columns:
    """The columns of the files that are read, and what becomes of them.

    Args:
        schema: The schema of the first file, a ``pyarrow.Schema``.
        path: The path of this file.
        wanted: What the user asked for.

    Attributes:
        names: The names of all columns that are read.
        structure: What an example is; see ``Blocks``.

    Raises:
        ArgumentError: A column is missing or twice, or holds what no model takes.
    """

    def __init__(self, schema: Any, path: str, wanted: Wanted) -> None:
        target = (wanted.target,) if isinstance(wanted.target, str) else wanted.target or ()
        if wanted.features is None:
            features = tuple(name for name in schema.names if name not in target)
        else:
            features = wanted.features
        self._check_names(features, target, schema, path)
        self.names = [*features, *target]
        self._kinds = {name: kind_of(schema.field(name), path) for name in self.names}
        self._path, self._fill = path, wanted.fill
        parts = [self._part(features, wanted.matrix, "features")]
        if isinstance(wanted.target, str):
            parts.append(_Part((wanted.target,), alone=True))
        elif target:
            parts.append(self._part(target, wanted.matrix, "target"))
        self._parts = parts
        self.structure = tuple(self._structure(part) for part in parts)
        self._check_fill(schema)

    def check(self, schema: Any, path: str) -> None:
        """Check that a file has the same columns as the first file.

        Raises:
            ArgumentError: A column is missing, or has another type.
        """
        for name in self.names:
            _check_there(name, schema, path)
            kind = kind_of(schema.field(name), path)
            if kind != self._kinds[name]:
                raise ArgumentError(
                    "A column must have the same type in all files.",
                    received=f"column {name!r} of {path}: {schema.field(name).type}, "
                    f"where {self._path} has {_words(self._kinds[name])}",
                    fix="Write the files with one schema.",
                )

    def arrays(self, table: Any, where: Where) -> list[Array]:
        """Convert a table or a record batch to the arrays of the leaves.

        Raises:
            ArgumentError: A value is missing.
        """
        return [array for part in self._parts for array in self._arrays_of(part, table, where)]

    def missing_is_error(self, name: str) -> bool:
        """Whether nothing stands for a missing value of a column."""
        return self._filling(name) is None

    def missing(self, name: str, where: Where) -> ArgumentError:
        """The error that a value of a column is missing in the row ``where``."""
        return ArgumentError(
            "A column must have a value in each row.",
            received=f"no value of column {name!r} in row {where.row} of {where.path}",
            fix=f"Pass fill={{{name!r}: {_example_fill(self._kinds[name])}}}, or leave such rows out.",
        )

    # --- What becomes of the columns

    def _part(self, names: tuple[str, ...], matrix: bool | None, argument: str) -> _Part:
        odd = [name for name in names if not _is_number(self._kinds[name])]
        if matrix and odd:
            raise ArgumentError(
                "`matrix` makes one array of columns, so each of them must be numbers.",
                received=f"matrix=True, and column {odd[0]!r} of `{argument}`: {_words(self._kinds[odd[0]])}",
                fix="Leave `matrix` or the column out.",
            )
        return _Part(names, matrix=not odd if matrix is None else matrix)

    def _structure(self, part: _Part) -> Any:
        if part.matrix:
            return Leaf(_batch_type(self._matrix_type(part)), (len(part.names),))
        leaves = {name: Leaf(_batch_type(kind.kind), kind.shape) for name, kind in self._of(part).items()}
        return next(iter(leaves.values())) if part.alone else leaves

    def _of(self, part: _Part) -> dict[str, Leaf]:
        return {name: self._kinds[name] for name in part.names}

    def _matrix_type(self, part: _Part) -> np.dtype[Any]:
        # As for data frames: float64 if float32 would round.
        return np.result_type(np.float32, *(kind.kind for kind in self._of(part).values()))

    def _arrays_of(self, part: _Part, table: Any, where: Where) -> list[Array]:
        arrays = {name: self._array(table, name, where) for name in part.names}
        if part.matrix:
            kind = self._matrix_type(part)
            stacked = np.empty((table.num_rows, len(arrays)), _batch_type(kind))
            for place, array in enumerate(arrays.values()):
                stacked[:, place] = array.astype(kind, copy=False)
            return [stacked]
        return [arrays[name].astype(_batch_type(arrays[name].dtype), copy=False) for name in sorted(arrays)]

    def _array(self, table: Any, name: str, where: Where) -> Array:
        import pyarrow as pa

        column, kind = table.column(name), self._kinds[name]
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if column.null_count:
            column = self._filled(column, name, where)
        if kind.is_text:
            large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
            return _of_objects(column.cast(pa.large_binary() if large else pa.binary()))
        if kind.shape:
            values = column.flatten()
            if values.null_count:
                row = int(np.flatnonzero(values.is_null())[0]) // kind.shape[0]
                raise self.missing(name, Where(where.path, where.row + row))
            return _numbers(values).reshape(len(column), *kind.shape)
        return _numbers(column)

    def _filled(self, column: Any, name: str, where: Where) -> Any:
        value = self._filling(name)
        if value is None:
            row = int(np.flatnonzero(column.is_null())[0])
            raise self.missing(name, Where(where.path, where.row + row))
        return column.fill_null(self._scalar(column.type, value, name))

    # --- What stands for missing values

    def _filling(self, name: str) -> Any:
        return self._fill.get(name) if isinstance(self._fill, Mapping) else self._fill

    def _check_fill(self, schema: Any) -> None:
        if not isinstance(self._fill, Mapping):
            return
        for name, value in self._fill.items():
            if name in self._kinds:
                self._scalar(_type_of_values(schema.field(name)), value, name)
            else:
                raise ArgumentError(
                    "`fill` must name columns that are read.",
                    received=f"{name!r}, where {', '.join(map(repr, self.names))} are read",
                    fix="Correct the name, or leave it out.",
                )

    def _scalar(self, kind: Any, value: Any, name: str) -> Any:
        import pyarrow as pa

        whole = isinstance(value, float) and value.is_integer() and not pa.types.is_floating(kind)
        try:
            return pa.scalar(int(value) if whole else value, kind)  # a number of R is a double
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(
                "`fill` must have a value of the type of the column.",
                received=f"{value!r} for column {name!r}: {kind}",
                fix=f"Pass fill={{{name!r}: {_example_fill(self._kinds[name])}}}, for example.",
            ) from error

    # --- Names

    @staticmethod
    def _check_names(features: Sequence[str], target: Sequence[str], schema: Any, path: str) -> None:
        if not features:
            raise ArgumentError(
                "`features` must name at least one column.",
                received=f"none beside the target, of {', '.join(map(repr, schema.names))}",
                fix="Name the columns that the model takes.",
            )
        for name in (*features, *target):
            _check_there(name, schema, path)
        both = [name for name in features if name in target]
        if both:
            raise ArgumentError(
                "A column is a feature or a target, not both.",
                received=f"{both[0]!r} in `features` and in `target`",
                fix="Leave it out of one of them.",
            )


@dataclass(frozen=True)
class _Part:
    """The columns of ``x`` or ``y``, and their form: one matrix, one column alone, or a dictionary."""

    names: tuple[str, ...]
    matrix: bool = False
    alone: bool = False


def kind_of(field: Any, path: str) -> Leaf:
    """Return the type of the values of a column, a ``pyarrow.Field``.

    Raises:
        ArgumentError: TensorFlow has no such type.
    """
    import pyarrow as pa

    kind = _type_of_values(field)
    shape: tuple[int, ...] = ()
    if pa.types.is_fixed_size_list(kind):
        kind, shape = kind.value_type, (kind.list_size,)
    is_text = any(
        test(kind)
        for test in (
            pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary
        )
    )  # fmt: skip
    if is_text and not shape:
        return Leaf(_TEXT)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return Leaf(np.dtype(kind.to_pandas_dtype()), shape)
    raise ArgumentError(
        "A column must hold numbers, logical values, text, categories, or lists of numbers of a fixed size.",
        received=f"column {field.name!r} of {path}: {field.type}",
        fix="Leave it out of `features`, or convert it where the files are written.",
    )


def _type_of_values(field: Any) -> Any:
    """The type of a column, or that of its categories."""
    import pyarrow as pa

    return field.type.value_type if pa.types.is_dictionary(field.type) else field.type


def _check_there(name: str, schema: Any, path: str) -> None:
    found = schema.names.count(name)
    if found != 1:
        raise ArgumentError(
            "`features` and `target` must name columns that each file has once.",
            received=f"{name!r}, which {path} has "
            + (f"{found} times" if found else f"not among {', '.join(map(repr, schema.names))}"),
            fix="Correct the name, or write the files with one schema.",
        )


def _is_number(kind: Leaf) -> bool:
    return kind.kind.kind in "biuf" and not kind.shape


def _batch_type(kind: np.dtype[Any]) -> np.dtype[Any]:
    """The type of values in a batch: Keras's type for numbers with a fraction, as for arrays."""
    if kind.kind != "f":
        return kind
    import keras

    floatx: np.dtype[Any] = np.dtype(keras.config.floatx())
    return floatx


def _numbers(column: Any) -> Array:
    array: Array = column.to_numpy(zero_copy_only=False)
    return array


def _of_objects(column: Any) -> Array:
    array: Array = column.to_numpy(zero_copy_only=False)
    return array.astype(object, copy=False)


def _words(kind: Leaf) -> str:
    values = "text" if kind.is_text else kind.kind.name
    return f"lists of {kind.shape[0]} {values}" if kind.shape else values


def _example_fill(kind: Leaf) -> str:
    return "''" if kind.is_text else "0"

"""The forms of ``x`` and ``y``: arrays, data frames, descriptions of data sets, objects, or functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfdistr._utils.describe import describe
from tfdistr.data.batch_objects import GivenBatches, GivenDataset, is_py_dataset
from tfdistr.datasets import Dataset
from tfdistr.errors import ArgumentError

Tree = Any  # an array, or tuples and dictionaries of arrays


@dataclass(frozen=True)
class Arrays:
    """Examples in arrays: a tuple ``(x,)``, ``(x, y)`` or ``(x, y, sample_weight)``, as in Keras."""

    parts: tuple[Tree, ...]
    columns: tuple[str, ...] | None = None  # of a data frame

    @property
    def examples(self) -> int:
        """Number of examples."""
        return len(leaves(self.parts)[0][1])

    def rows(self, first: int, end: int) -> Arrays:
        """The examples from number ``first`` to before number ``end``."""
        return Arrays(tuple(_rows(part, first, end) for part in self.parts), self.columns)


def gives_batches(source: Any) -> bool:
    """Whether data is an object that gives batches of its own size."""
    return getattr(source, "gives_batches", False) is True


@dataclass(frozen=True)
class Form:
    """The form of the data that a model was trained with.

    Attributes:
        columns: The names of the columns, if ``x`` was a data frame.
        targets: Whether the data has targets; None if this is not known.
    """

    columns: tuple[str, ...] | None = None
    targets: bool | None = None


def form_of(source: Any) -> Form:
    """The form of data."""
    if not isinstance(source, Arrays):
        return Form()
    return Form(source.columns, len(source.parts) > 1)


Source = Arrays | Dataset | Callable[..., Any]


def describe_source(source: Any) -> int | str | None:
    """What the same data is in each calling language: the number of examples, or the kind of the source.

    A function is a function whether it is one of Python, of R, of a file, or the name of one.
    """
    match source:
        case None:
            return None
        case Arrays():
            return source.examples
        case Dataset():
            return f"the data set {source.name!r}, split {source.split!r}"
        case GivenDataset():
            return "a tf.data.Dataset"
        case GivenBatches():
            return "a PyDataset or a generator"
    return "a function"


def make_source(x: Any, y: Any = None, sample_weight: Any = None, *, name: str = "x") -> Source:
    """Check the data of the user and bring it into one of three forms.

    Args:
        x: Arrays (nested in tuples, lists or dictionaries), a data frame, the result of
            ``load_dataset()``, a ``tf.data.Dataset``, a ``PyDataset``, a generator, or a function.
        y: Arrays of targets; None unless ``x`` is arrays.
        sample_weight: One weight for each example; None unless ``x`` is arrays.
        name: The name of ``x`` for the user.

    Raises:
        ArgumentError: ``x`` has another form, arrays differ in length or hold no example, or there are
            separate targets or weights for data that includes them.
    """
    x = _object(x, name)
    if isinstance(x, Dataset) or callable(x):
        for label, value in (("y", y), ("sample_weight", sample_weight)):
            if value is not None:
                raise ArgumentError(
                    f"`{label}` goes with arrays only; a data set, a generator or a function brings its own.",
                    received=f"`{label}`, where `{name}` is no array",
                    fix=f"Leave `{label}` out, and let the examples be tuples (x, y, sample_weight).",
                )
        return x  # type: ignore[no-any-return]
    if y is None and sample_weight is not None:
        raise ArgumentError(
            "`sample_weight` weighs the loss of targets, so it needs `y`.",
            received="`sample_weight` without `y`",
            fix="Pass `y` too.",
        )
    given = ((name, x), ("y", y), ("sample_weight", sample_weight))
    parts = (as_arrays(part, label) for label, part in given if label == name or part is not None)
    source = Arrays(tuple(parts), column_names(x))
    _check_lengths(source, name)
    return source


@dataclass(frozen=True)
class Columns:
    """A data frame of R: its columns by name."""

    columns: dict[str, Any]


def _columns_of(value: Any) -> dict[str, Any] | None:
    """The columns of a data frame of pandas or R; None for other values."""
    if isinstance(value, Columns):
        return value.columns
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):
        return {str(column): value[column].to_numpy() for column in value.columns}
    return None


def column_names(value: Any) -> tuple[str, ...] | None:
    """The names of the columns of a data frame; None for other values."""
    columns = _columns_of(value)
    return None if columns is None else tuple(columns)


def choose_columns(value: Any, wanted: Sequence[str], name: str) -> Any:
    """The columns of a data frame that a model was trained with; other values unchanged.

    Raises:
        ArgumentError: A column is missing.
    """
    columns = _columns_of(value)
    if columns is None:
        return value
    missing = [column for column in wanted if column not in columns]
    if missing:
        raise ArgumentError(
            f"`{name}` must have the columns that the model was trained with.",
            received=f"no column {', '.join(map(repr, missing))} among {', '.join(map(repr, columns))}",
            fix=f"Pass a data frame with the columns {', '.join(map(repr, wanted))}.",
        )
    return Columns({column: columns[column] for column in wanted})


def _object(x: Any, name: str) -> Any:
    """The function for an object that gives batches; other values unchanged."""
    tensorflow = sys.modules.get("tensorflow")  # it has been imported where there is a dataset
    if tensorflow is not None and isinstance(x, tensorflow.data.Dataset):
        return GivenDataset(x, name)
    return GivenBatches(x, name) if is_py_dataset(x) or isinstance(x, Iterator) else x


def as_arrays(value: Any, name: str) -> Tree:
    """Convert to a nested structure of NumPy arrays. Lists become tuples, and data frames become arrays."""
    columns = _columns_of(value)
    if columns is not None:
        return _from_columns(columns, name)
    if isinstance(value, Mapping):
        if any(not isinstance(key, str) for key in value):
            raise ArgumentError(
                f"`{name}` must name its arrays by text.",
                received=f"the name {next(key for key in value if not isinstance(key, str))!r}",
                fix="Use the names of the model's inputs.",
            )
        return {key: as_arrays(part, name) for key, part in value.items()}
    if isinstance(value, tuple | list) and not _is_numbers(value):
        return tuple(as_arrays(part, name) for part in value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # bytes that are not text, among text; a part that is no array
        raise ArgumentError(
            f"`{name}` must be what NumPy makes arrays of.",
            received=f"{type(value).__name__}: {error}",
            fix="Convert it to a NumPy array of numbers or of text.",
        ) from error
    if array.ndim == 0:
        raise ArgumentError(
            f"`{name}` must be arrays, a data frame, a data set of load_dataset(), or a function.",
            received=describe(value),
            fix="Convert it to an array, or pass a function that returns a tf.data.Dataset.",
        )
    odd = _not_data(array)
    if odd:
        raise ArgumentError(
            f"`{name}` must hold numbers, logical values or text, and no missing ones among text.",
            received=odd,
            fix="Fill in or drop what is missing, and convert the rest to numbers or text.",
        )
    # Rows are gathered from it. In Fortran order (R's), each row would be spread over the whole array.
    return np.ascontiguousarray(array)


def _from_columns(columns: Mapping[str, Any], name: str) -> Tree:
    """Convert a data frame: to one matrix if all columns are numbers, else to a dictionary of columns."""
    arrays = {key: as_arrays(column, f"{name}[{key!r}]") for key, column in columns.items()}
    if arrays and all(array.dtype.kind in "biuf" for array in arrays.values()):
        return np.stack([array.astype(np.float32) for array in arrays.values()], axis=1)
    return arrays


def leaves(tree: Tree, path: str = "") -> list[tuple[str, np.ndarray[Any, Any]]]:
    """Return all arrays of a structure with their paths, in TensorFlow's order (dictionaries by key)."""
    if tree is None:
        return []
    if isinstance(tree, Mapping):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key], f"{path}[{key!r}]")]
    if isinstance(tree, tuple):
        return [leaf for number, part in enumerate(tree) for leaf in leaves(part, f"{path}[{number}]")]
    return [(path, tree)]


def _rows(tree: Tree, first: int, end: int) -> Tree:
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: _rows(part, first, end) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_rows(part, first, end) for part in tree)
    return tree[first:end]


def _check_lengths(source: Arrays, name: str) -> None:
    names = (name, "y", "sample_weight")
    lengths = {
        names[number] + path: len(array)
        for number, part in enumerate(source.parts)
        for path, array in leaves(part)
    }
    if not lengths:
        raise ArgumentError(f"`{name}` must hold at least one array.", received=repr(source.parts[0]),
                            fix="Pass the inputs of the model.")  # fmt: skip
    if len(set(lengths.values())) > 1:
        raise ArgumentError(
            "All arrays must have the same number of examples (their first dimension).",
            received=", ".join(f"{key}: {length}" for key, length in lengths.items()),
            fix="Give every example an input, a target and a weight.",
        )
    if next(iter(lengths.values())) == 0:
        raise ArgumentError(
            f"`{name}` must hold at least one example.", received="0 examples", fix="Pass data to train on."
        )


def _is_numbers(values: Sequence[Any]) -> bool:
    return len(values) > 0 and all(isinstance(v, int | float | str | bytes | np.generic) for v in values)


def _not_data(array: np.ndarray[Any, Any]) -> str:
    """Describe the part of the array for which TensorFlow has no type; empty if there is none."""
    if array.dtype.kind == "O":
        return next((repr(value) for value in array.flat if not isinstance(value, str | bytes)), "")
    return "" if array.dtype.kind in "biufcSU" else f"an array of {array.dtype}"

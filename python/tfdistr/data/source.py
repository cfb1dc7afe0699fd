"""The forms of ``x`` and ``y``: arrays, data frames, descriptions of data sets, or functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfdistr.datasets import Dataset
from tfdistr.errors import ArgumentError

Tree = Any  # an array, or tuples and dictionaries of arrays


@dataclass(frozen=True)
class Arrays:
    """Examples in arrays: a tuple ``(x,)``, ``(x, y)`` or ``(x, y, sample_weight)``, as in Keras."""

    parts: tuple[Tree, ...]

    @property
    def examples(self) -> int:
        """Number of examples."""
        return len(leaves(self.parts)[0][1])


Source = Arrays | Dataset | Callable[..., Any]


def make_source(x: Any, y: Any = None, sample_weight: Any = None, *, name: str = "x") -> Source:
    """Check the data of the user and bring it into one of three forms.

    Args:
        x: Arrays (nested in tuples, lists or dictionaries), a data frame, the result of
            ``load_dataset()``, or a function.
        y: Arrays of targets; None unless ``x`` is arrays.
        sample_weight: One weight for each example; None unless ``x`` is arrays.
        name: The name of ``x`` for the user.

    Raises:
        ArgumentError: ``x`` has another form, arrays differ in length or hold no example, or there are
            separate targets or weights for data that includes them.
    """
    if isinstance(x, Dataset) or callable(x):
        for label, value in (("y", y), ("sample_weight", sample_weight)):
            if value is not None:
                raise ArgumentError(
                    f"`{label}` goes with arrays only; a data set or a function brings its own.",
                    received=f"`{name}` is a {'function' if callable(x) else 'data set'}, and `{label}` too",
                    fix=f"Leave `{label}` out, and let the examples be tuples (x, y, sample_weight).",
                )
        return x  # type: ignore[no-any-return]
    if type(x).__module__.startswith("tensorflow.") and hasattr(x, "element_spec"):
        raise ArgumentError(
            f"`{name}` must be a function that makes the tf.data.Dataset: each worker makes its own.",
            received=type(x).__name__,
            fix=f"Pass {name}=lambda ctx: dataset, with the code that makes the dataset inside; or arrays.",
        )
    if y is None and sample_weight is not None:
        raise ArgumentError(
            "`sample_weight` weighs the loss of targets, so it needs `y`.",
            received="`sample_weight` without `y`",
            fix="Pass `y` too.",
        )
    given = ((name, x), ("y", y), ("sample_weight", sample_weight))
    parts = (as_arrays(part, label) for label, part in given if label == name or part is not None)
    source = Arrays(tuple(parts))
    _check_lengths(source, name)
    return source


def as_arrays(value: Any, name: str) -> Tree:
    """Convert to a nested structure of NumPy arrays. Lists become tuples, and data frames become arrays."""
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):
        return from_columns({str(column): value[column].to_numpy() for column in value.columns}, name)
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
            received=f"{type(value).__module__}.{type(value).__name__}",
            fix="Convert it to a NumPy array, or pass a function that returns a tf.data.Dataset.",
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


def from_columns(columns: Mapping[str, Any], name: str = "x") -> Tree:
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

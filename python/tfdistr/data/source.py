"""The forms of ``x`` and ``y``: arrays, data frames, descriptions of data sets, objects, or functions."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tfdistr.data.datasets import Dataset
from tfdistr.data.form import (
    Classes,
    Form,
    Levels,
    Matrix,
    column_names,
    columns_of_frame,
    levels_of,
    with_classes,
)
from tfdistr.data.pipeline.batch_objects import GivenBatches, GivenDataset, is_py_dataset
from tfdistr.data.readers.arrow_tables import array_of_column, from_arrow, is_arrow
from tfdistr.data.trees import Array, Tree, leaves, replaced
from tfdistr.errors import ArgumentError
from tfdistr.utils.describe import describe

# Bytes of an array that its digest reads; of a larger one, as many rows as have about these.
_DIGESTED = 64 * 1024 * 1024


@dataclass(frozen=True)
class Arrays:
    """Examples in arrays: ``x``, perhaps ``y`` and ``sample_weight``; and the names in them, see ``Form``."""

    parts: tuple[Tree, ...]
    columns: tuple[str, ...] | None = None
    levels: Levels = field(default_factory=dict)

    @property
    def examples(self) -> int:
        """Number of examples."""
        return len(leaves(self.parts)[0][1])

    @cached_property
    def by_rows(self) -> list[Array]:
        """All arrays, from which rows are gathered: the rows of each array lie together.

        R's arrays are in Fortran order, where each row is spread over the whole array. They are copied here,
        once, and only in a process that reads them.
        """
        return [np.ascontiguousarray(array) for _, array in leaves(self.parts)]

    def digest(self) -> str:
        """Return the digest of the rows: of all of them, or of evenly spread ones of large arrays."""
        found = hashlib.sha256()
        for array in self.by_rows:
            step = -(-array.nbytes // _DIGESTED)
            part = np.ascontiguousarray(array[:: max(1, step)])
            content = part.tobytes() if part.dtype.kind != "O" else repr(part.tolist()).encode()
            found.update(f"{array.dtype} {array.shape}".encode() + content)
        return found.hexdigest()[:16]

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "by_rows"}

    @property
    def structure(self) -> Tree:
        """The arrays in the structure for a Keras step."""
        return pack_parts(self.parts)

    def rows(self, first: int, end: int) -> Arrays:
        """Return the examples from number ``first`` to before number ``end``."""
        return Arrays(replaced(self.parts, lambda array: array[first:end]), self.columns, self.levels)

    def matched(self, form: Form, name: str) -> Arrays:
        """Return these examples with the columns and the numbers of the classes of another form."""
        if form.targets is None or (form.columns, form.levels) == (self.columns, self.levels):
            return self
        x, *others = self.parts
        if self.columns is not None and isinstance(x, np.ndarray):
            x = Matrix(x, self.columns)
        if others:
            others[0] = with_classes(others[0], self.levels)
        made = [as_arrays(part, name) for part in form.matched([x, *others], name)]
        return Arrays(tuple(made), self.columns and form.columns, form.levels)


def pack_parts(parts: tuple[Tree, ...]) -> Tree:
    """Pack ``(x,)``, ``(x, y)`` or ``(x, y, sample_weight)`` as ``keras.utils.pack_x_y_sample_weight`` does.

    ``x`` alone is not in a tuple, unless it is a tuple itself: its arrays would look like inputs and targets.
    """
    return parts[0] if len(parts) == 1 and not isinstance(parts[0], tuple) else parts


def gives_batches(source: object) -> bool:
    """Return whether data is an object that yields batches of its own size."""
    return getattr(source, "gives_batches", False) is True


def form_of(source: object) -> Form:
    """Return the form of data."""
    if isinstance(source, Arrays):
        return Form(source.columns, len(source.parts) > 1, source.levels, source.examples)
    if isinstance(source, Dataset):
        targets = True if source.levels else None  # numbers may be classes of which the names are not known
        examples = getattr(source, "examples", None)
        return Form(source.columns_of_inputs, targets, source.levels, examples)
    return Form()


Source = Arrays | Dataset | Callable[..., object]


def describe_source(source: object) -> int | str | None:
    """Return what both calling languages agree on: the number of examples, or the kind of the source."""
    match source:
        case None:
            return None
        case Arrays():
            return source.examples
        case Dataset():
            return source.identity
        case GivenDataset():
            return "a tf.data.Dataset"
        case GivenBatches():
            return "a PyDataset or a generator"
    return "a function"


def batches_of(source: object) -> str:
    """Return what gives the batches, where the caller gives none of their size."""
    kinds = {GivenDataset: "data set", GivenBatches: "generator"}
    return next((name for kind, name in kinds.items() if isinstance(source, kind)), "data function")


def make_source(
    x: Any, y: Any = None, sample_weight: Any = None, *, name: str = "x", form: Form | None = None
) -> Source:
    """Check the user's data and convert it into one of three forms."""
    x = _object(from_arrow(x, name), name)
    if form is not None:
        x = form.inputs(x, name)
        y = form.coded(y, "y" if name == "x" else name)
    if isinstance(x, Dataset) or callable(x):
        for label, value in (("y", y), ("sample_weight", sample_weight)):
            if value is not None:
                raise ArgumentError(
                    f"`{label}` needs arrays; a data set, a generator or a function has its own.",
                    received=f"`{label}`, where `{name}` is no array",
                    fix=f"Leave `{label}` out, and let the examples be tuples (x, y, sample_weight).",
                )
        return x  # type: ignore[no-any-return]
    if y is None and sample_weight is not None:
        raise ArgumentError(
            "`sample_weight` needs `y`: it weights the loss of targets.",
            received="`sample_weight` without `y`",
            fix="Pass `y` too.",
        )
    given = ((name, x), ("y", y), ("sample_weight", sample_weight))
    parts = [as_arrays(part, label) for label, part in given if label == name or part is not None]
    if len(parts) == 3 and any(array.dtype.kind in "OSU" for _, array in leaves(parts[2])):
        raise ArgumentError(
            "`sample_weight` must hold numbers.", received="text", fix="Convert it to numbers."
        )
    if len(parts) == 3 and isinstance(parts[2], np.ndarray):
        weights = parts[2]  # Keras gives each target the weights of the examples
        parts[2] = replaced(parts[1], lambda _: weights)
    source = Arrays(tuple(parts), column_names(x), levels_of(y))
    _check_lengths(source, name)
    return source


def _object(x: object, name: str) -> object:
    """Return the function for an object that yields batches; other values unchanged."""
    tensorflow = sys.modules.get("tensorflow")  # it has been imported where there is a dataset
    if tensorflow is not None and isinstance(x, tensorflow.data.Dataset):
        return GivenDataset(x, name)
    return GivenBatches(x, name) if is_py_dataset(x) or isinstance(x, Iterator) else x


def as_arrays(value: object, name: str) -> Tree:
    """Convert to a nested structure of NumPy arrays. Lists become tuples, and data frames become arrays."""
    value = from_arrow(value, name)
    if isinstance(value, Matrix):
        value = value.values
    if isinstance(value, Classes):
        value = value.numbers
    columns = columns_of_frame(value, name)
    if columns is not None:
        return _from_columns(columns, name)
    if is_arrow(value, "ChunkedArray"):
        return array_of_column(value, name)
    if isinstance(value, Mapping):
        if any(not isinstance(key, str) for key in value):
            raise ArgumentError(
                f"`{name}` must name its arrays by text.",
                received=f"the name {next(key for key in value if not isinstance(key, str))!r}",
                fix="Use the names of the model's inputs.",
            )
        return {key: as_arrays(part, name) for key, part in value.items()}
    if isinstance(value, tuple | list) and not _is_scalars(value):
        return tuple(as_arrays(part, name) for part in value)
    try:
        array = np.asarray(value, object if _is_of_objects(value) else None)
    except (TypeError, ValueError) as error:  # bytes that are not text, among text; a part that is no array
        raise ArgumentError(
            f"`{name}` must be convertible to NumPy arrays.",
            received=f"{type(value).__name__}: {error}",
            fix="Convert it to a NumPy array of numbers or of text.",
        ) from error
    if array.ndim == 0:
        raise ArgumentError(
            f"`{name}` must be arrays, a data frame, a data set of load_dataset(), or a function.",
            received=describe(value),
            fix="Convert it to an array, or pass a function that returns a tf.data.Dataset.",
        )
    odd = "an array with masked values" if np.ma.is_masked(value) else _not_data(array)
    if odd:
        raise ArgumentError(
            f"`{name}` must hold numbers, logical values or text, and no missing ones among text.",
            received=odd,
            fix="Fill in or drop what is missing, and convert the rest to numbers or text.",
        )
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _from_columns(columns: Mapping[str, object], name: str) -> Tree:
    """Convert a data frame: to one matrix if all columns are numbers, else to a dictionary of columns."""
    arrays = {key: as_arrays(column, f"{name}[{key!r}]") for key, column in columns.items()}
    numbers = all(
        isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "biuf"
        for array in arrays.values()
    )
    if arrays and numbers:
        kind = np.result_type(np.float32, *arrays.values())  # float64 if float32 would round
        return np.stack([array.astype(kind, copy=False) for array in arrays.values()], axis=1)
    return arrays


def _check_lengths(source: Arrays, name: str) -> None:
    lengths: dict[str, int] = {}
    for label, part in zip((name, "y", "sample_weight"), source.parts, strict=False):
        arrays = leaves(part, label)
        if not arrays:
            raise ArgumentError(
                f"`{label}` must hold at least one array.",
                received=repr(part),
                fix="Pass the inputs of the model." if label == name else f"Pass arrays, or {label}=None.",
            )
        lengths |= {path: len(array) for path, array in arrays}
    if len(set(lengths.values())) > 1:
        raise ArgumentError(
            "All arrays must have the same number of examples (their first dimension).",
            received=", ".join(f"{key}: {length}" for key, length in lengths.items()),
            fix="Give every example an input, a target and a weight.",
        )
    if next(iter(lengths.values())) == 0:
        raise ArgumentError(
            f"`{name}` must hold at least one example.",
            received="0 examples",
            fix="Pass one example or more.",
        )


_SCALARS = int | float | complex | str | bytes | np.generic


def _is_scalars(values: Sequence[object]) -> bool:
    """Return whether a list is one array: its values are numbers or text, of which some may be missing."""
    known = [value for value in values if not _is_missing(value)]
    return len(known) > 0 and all(isinstance(value, _SCALARS) for value in known)


def _is_of_objects(values: object) -> bool:
    """Return whether NumPy would change values of a list: it turns numbers into text, and strips NUL."""
    if not isinstance(values, list | tuple):
        return False
    text = [value for value in values if isinstance(value, str | bytes)]
    ends = any(value[-1:] in ("\0", b"\0") for value in text)
    return ends or (0 < len(text) < len(values)) or any(_is_missing(value) for value in values)


def _is_missing(value: object) -> bool:
    """Return whether a value is None, or pandas's NA. NaN is a number."""
    return value is None or type(value).__name__ == "NAType"


def _not_data(array: Array) -> str:
    """Describe the part of the array for which TensorFlow has no type; empty if there is none."""
    if array.dtype.kind == "O":
        odd = [value for value in array.flat if not isinstance(value, str | bytes)]
        return repr(next(filter(_is_missing, odd), odd[0])) if odd else ""
    return "" if array.dtype.kind in "biufcSU" and array.dtype.char != "G" else f"an array of {array.dtype}"

"""The names in the data of a training, which match later data: columns of inputs, classes of targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tfdistr.data.datasets import Dataset
from tfdistr.data.readers.arrow_tables import array_of_column, is_arrow
from tfdistr.data.trees import Array
from tfdistr.errors import ArgumentError

Levels = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Columns:
    """The columns of an R data frame by name."""

    columns: dict[str, Any]


@dataclass(frozen=True)
class Matrix:
    """An R matrix whose columns have names."""

    values: Any
    names: tuple[str, ...]


@dataclass(frozen=True)
class Classes:
    """An R factor: the numbers of classes, from 0, and the names of all classes."""

    numbers: Any
    names: tuple[str, ...]


@dataclass(frozen=True)
class Form:
    """The form of the data that a model was trained with.

    Attributes:
        columns: The names of the columns, if ``x`` was a data frame, a matrix with names, or in files.
        targets: Whether the data has targets; None if this is not known.
        levels: The names of the classes of each target that has some, by its path in ``y``.
        examples: The number of examples; None if this is not known.
    """

    columns: tuple[str, ...] | None = None
    targets: bool | None = None
    levels: Levels = field(default_factory=dict)
    examples: int | None = None

    def of_batches(self, first: Sequence[object]) -> Form:
        """Return the form of batches, of which this may not know all: then the first one has the rest."""
        if self.targets is not None:
            return self
        columns = column_names(first[0]) if self.columns is None else self.columns
        return Form(columns, len(first) > 1, levels_of(first[1]) if len(first) > 1 else {})

    def or_else(self, other: Form) -> Form:
        """Return this form if it is known, else the other one."""
        return self if self.targets is not None or self.columns is not None else other

    def matched(self, parts: Sequence[object], name: str) -> list[object]:
        """Return inputs, and perhaps targets and weights, that match; see `inputs` and `coded`."""
        x, *others = parts
        if others:
            others[0] = self.coded(others[0], "y" if name == "x" else name)
        return [self.inputs(x, name), *others]

    def weights(self, weights: object) -> Any:
        """Return the weights of classes by number, where they are given by the names of the only target."""
        names = self.levels.get("")
        if names is None or not isinstance(weights, Mapping) or not all(isinstance(w, str) for w in weights):
            return weights
        if any(name not in names for name in weights):
            if all(name.isdecimal() for name in weights):
                return weights  # they are numbers
            unknown = [name for name in weights if name not in names]
            raise ArgumentError(
                "`class_weight` must name classes of `y`.",
                received=f"{_listed(unknown)}, where the classes are {_listed(names)}",
                fix=f"Pass class_weight={{{names[0]!r}: 2.0}}, for example.",
            )
        return {names.index(name): weight for name, weight in weights.items()}

    def to_dict(self) -> dict[str, object]:
        """Return the form in JSON types."""
        levels = {f"y{path}": list(names) for path, names in self.levels.items()}
        return {"columns": list(self.columns or ()), "targets": self.targets, "levels": levels}

    @classmethod
    def from_dict(cls, parts: Mapping[str, Any]) -> Form:
        """Return the form that ``to_dict`` returned."""
        levels = {path.removeprefix("y"): tuple(names) for path, names in parts["levels"].items()}
        return cls(tuple(parts["columns"]) or None, parts["targets"], levels)

    def inputs(self, x: object, name: str) -> Any:
        """Return inputs with the columns of the training, in its order, if they have names."""
        if isinstance(x, Dataset):
            return self.dataset(x, name)
        if self.columns is None:
            return x
        if isinstance(x, Matrix):
            self._check_columns(x.names, name)
            places = [x.names.index(column) for column in self.columns]
            return Matrix(np.asarray(x.values)[:, places], self.columns)
        columns = columns_of_frame(x, name)
        if columns is None:
            return x
        self._check_columns(columns, name)
        return Columns({column: columns[column] for column in self.columns})

    def dataset(self, data: Dataset, name: str) -> Dataset:
        """Return a data set whose classes have the numbers of the training; see `inputs` and `coded`."""
        listed = data.columns_of_inputs
        if self.columns is not None and listed and listed != self.columns:
            raise self._other_columns(listed, name, "features=[{}]")
        if self.targets is None:  # a function may have coded the classes in any way
            return data
        levels = {}
        for path, own in data.levels.items():
            numbers = self.coded(Classes(np.arange(len(own)), own), name, path).numbers
            place = dict(zip(numbers.tolist(), own, strict=True))
            levels[path] = self.levels.get(path) or tuple(place.get(at, "") for at in range(max(place) + 1))
        return replace(data, levels=levels)

    def _check_columns(self, present: Sequence[str] | Mapping[str, object], name: str) -> None:
        if any(column not in present for column in self.columns or ()):
            raise self._other_columns(tuple(present), name, "a data frame with the columns {}")

    def _other_columns(self, present: Sequence[str], name: str, fix: str) -> ArgumentError:
        wanted = self.columns or ()
        missing = [column for column in wanted if column not in present]
        return ArgumentError(
            f"`{name}` must have the columns that the model was trained with.",
            received=f"no column {_listed(missing)} among {_listed(present)}"
            if missing
            else f"the columns {_listed(present)}",
            fix=f"Pass {fix.format(_listed(wanted))}.",
        )

    def coded(self, y: object, name: str, path: str = "") -> Any:
        """Return targets whose classes have the numbers of the training."""
        parts = [self.coded(part, name, path + key) for key, part in _parts(y).items()]
        if isinstance(y, Columns):
            return Columns(dict(zip(y.columns, parts, strict=True)))
        if isinstance(y, Mapping | tuple):
            return dict(zip(y, parts, strict=True)) if isinstance(y, Mapping) else tuple(parts)
        names = self.levels.get(path)
        if isinstance(y, Classes):
            return self._recoded(y, names, name + path)
        if names is not None and (text := _text_of(y)) is not None:
            found, numbers = np.unique(text, return_inverse=True)
            return self._recoded(Classes(numbers, tuple(map(str, found))), names, name + path)
        if names is not None and y is not None and _are_other_numbers(names):
            raise ArgumentError(
                f"`{name + path}` must say whether it has classes or their numbers, which differ.",
                received=f"numbers or logical values, where the classes are {_listed(names)}",
                fix="Pass the classes as text, or as a factor where the training had one.",
            )
        return y

    def _recoded(self, classes: Classes, names: tuple[str, ...] | None, name: str) -> Classes:
        if self.targets is None:  # a function or files may have coded the classes in any way
            return classes
        numbers = np.asarray(classes.numbers)
        if names is None:
            if not all(own.isdecimal() for own in classes.names):
                raise ArgumentError(
                    f"`{name}` must be of the type that `y` of the training had.",
                    received=f"the classes {_listed(classes.names)}, where it was numbers",
                    fix="Pass numbers, or train with a factor, or with files that have text as `target`.",
                )
            return Classes(
                np.array([int(own) for own in classes.names], numbers.dtype)[numbers], classes.names
            )
        used = np.unique(numbers)
        unknown = [own for number, own in enumerate(classes.names) if own not in names and number in used]
        if unknown:
            raise ArgumentError(
                f"`{name}` must have the classes of the training.",
                received=f"{_listed(unknown)}, where the classes are {_listed(names)}",
                fix="Leave such rows out, or train with data that has these classes.",
            )
        place = {own: number for number, own in enumerate(names)}
        codes = np.array([place.get(own, -1) for own in classes.names], numbers.dtype)
        return Classes(codes[numbers], names)


def levels_of(y: object, path: str = "") -> dict[str, tuple[str, ...]]:
    """Return the names of the classes of each target that is a factor, by its path."""
    if isinstance(y, Classes):
        return {path: y.names}
    found: dict[str, tuple[str, ...]] = {}
    for key, part in _parts(y).items():
        found |= levels_of(part, path + key)
    return found


def with_classes(y: object, levels: Levels, path: str = "") -> object:
    """Return arrays of targets with the names of their classes; see `levels_of`."""
    if path in levels:
        return Classes(y, levels[path])
    parts = {key: with_classes(part, levels, path + key) for key, part in _parts(y).items()}
    if isinstance(y, Mapping):
        return dict(zip(y, parts.values(), strict=True))
    return tuple(parts.values()) if isinstance(y, tuple) else y


def _parts(y: object) -> dict[str, Any]:
    """Return the parts of targets by their paths. An only column is the target itself, whatever its name."""
    if isinstance(y, Columns):
        return {"" if len(y.columns) == 1 else f"[{key!r}]": part for key, part in y.columns.items()}
    if isinstance(y, Mapping):
        return {f"[{key!r}]": part for key, part in y.items()}
    return {f"[{place}]": part for place, part in enumerate(y)} if isinstance(y, tuple) else {}


def _are_other_numbers(names: Sequence[str]) -> bool:
    """Return whether the names of classes are numbers, or logical values, other than their own numbers."""
    logical = {"FALSE": "0", "TRUE": "1"}
    try:
        numbers = [float(logical.get(own.upper(), own)) for own in names]
    except ValueError:
        return False
    return numbers != list(range(len(names)))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _text_of(value: object) -> Array | None:
    """Return values as an array of text; None if they are no text."""
    array = np.asarray(value)
    text = array.dtype.kind == "U" or (array.dtype == object and all(isinstance(v, str) for v in array.flat))
    return array.astype(str) if text and array.size else None


def columns_of_frame(value: Any, name: str = "x") -> dict[str, object] | None:
    """Return the columns of a pandas or R data frame, or of an Arrow table; None for other values."""
    if isinstance(value, Columns):
        return value.columns
    if is_arrow(value, "Table"):
        check_names(value.schema.names, name)
        return {column: array_of_column(value.column(column), name, column) for column in value.schema.names}
    if hasattr(value, "to_numpy") and hasattr(value, "columns"):
        names = [str(column) for column in value.columns]
        check_names(names, name)
        return {str(column): value[column].to_numpy() for column in value.columns}
    return None


def column_names(value: object) -> tuple[str, ...] | None:
    """Return the names of the columns of a data frame or a matrix; None for other values."""
    if isinstance(value, Matrix):
        return value.names
    columns = columns_of_frame(value)
    return None if columns is None else tuple(columns)


def check_names(names: Sequence[object], name: str) -> None:
    """Check the names of parts: a dictionary would keep only one part of each name."""
    unnamed = sum(not isinstance(part, str) or not part for part in names)
    twice = next((part for place, part in enumerate(names) if part in names[:place]), None)
    if unnamed or twice is not None:
        raise ArgumentError(
            f"`{name}` must have a different name for each of its parts.",
            received=f"{unnamed} of {len(names)} parts without a name"
            if unnamed
            else f"the name {twice!r} more than once",
            fix="Give each part its own name.",
        )

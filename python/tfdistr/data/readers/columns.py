"""The columns of an Arrow table as arrays of a model, treated like those of a data frame.

All features that are numbers become one matrix, as those of a data frame do (``data/source.py``). A column of
images that is the only feature is ``x`` itself. Otherwise the features are a dictionary of columns. Text is
text, a category is its text, and lists are arrays, so all of a column must have one size. Text in targets is
the number of its class.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tfdistr.data.readers.arrow_tables import (
    Refuse,
    bytes_of,
    form_of_column,
    numbers_of_column,
    shape_of,
    type_of_values,
    uneven_lists,
    values_of_column,
)
from tfdistr.data.readers.blocks import Leaf
from tfdistr.data.readers.image_folder import Images
from tfdistr.data.readers.paths import changed
from tfdistr.data.trees import Array, batch_type, leaves
from tfdistr.errors import ArgumentError

log = logging.getLogger("tfdistr")


@dataclass(frozen=True)
class Wanted:
    """The user's choice of columns.

    Attributes:
        features: Names of the columns of ``x``; None for all columns but the targets.
        target: Name of the column of ``y``, a list of names, or None for examples without ``y``.
        fill: The replacement of missing values: a value for all columns, or a dictionary by column; None if a
            missing value is an error.
        matrix: Whether several columns become one matrix; None for a matrix if all are numbers.
        image_size: Height and width to which images are resized; None if those of a column have one size.
        classes: The names of the classes of each target of text, by its path in ``y``.
    """

    features: tuple[str, ...] | None
    target: str | tuple[str, ...] | None
    fill: Any = None
    matrix: bool | None = None
    image_size: tuple[int, int] | None = None
    color_mode: str | None = None
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def targets(self) -> dict[str, str]:
        """Return the paths of the columns of ``y``, by their names."""
        if isinstance(self.target, str):
            return {self.target: ""}
        return {name: f"[{name!r}]" for name in self.target or ()}


class Where(NamedTuple):
    """The place of rows, for errors: a file, and the number of the first row in it."""

    path: str
    row: int


#: A function that returns the first rows of a column: their place, and an Arrow array; None without rows.
First = Callable[[str], "tuple[Where, Any] | None"]


class Column:
    """A column of the files, and its conversion. ``first`` reads its first rows, for lists and images."""

    def __init__(self, name: str, kind: object, path: str, wanted: Wanted, first: First) -> None:
        self.name, self.form = name, form_of_column(kind, f"column {name!r} of {path}")
        self._fill = wanted.fill.get(name) if isinstance(wanted.fill, Mapping) else wanted.fill
        if isinstance(wanted.fill, Mapping) and self._fill is not None:
            self._scalar(type_of_values(kind))
        self._shape = tuple(size or 0 for size in self.form.sizes)
        self.images: Images | None = None
        if (self.form.is_image or None in self.form.sizes) and (found := first(name)):
            where, values = found
            values, refuse = values_of_column(values), self._refuse(where)
            if self.form.is_image:
                image = bytes_of(values[:1], refuse)[0]
                mode = wanted.color_mode or "rgb"
                self.images = Images(wanted.image_size, mode, image, self._at(where))
            else:
                self._shape = shape_of(self.form, self._filled(values), refuse)
        classes = wanted.classes.get(wanted.targets().get(name, "no target"))
        self._numbers = {name.encode(): number for number, name in enumerate(classes or ())}
        self.stored = Leaf(np.dtype(np.int32) if classes else batch_type(self.form.kind), self._shape)
        self.leaf = self.images.leaf if self.images else self.stored

    @property
    def missing_is_error(self) -> bool:
        """Return whether nothing stands for missing values."""
        return self._fill is None

    def missing(self, where: Where) -> ArgumentError:
        """Return the error that the value of a row is missing."""
        return ArgumentError(
            "A column must have a value in each row.",
            received=f"no value of {self._at(where)}",
            fix="Leave such rows out."
            if self.form.is_image
            else f"Pass {self._example_fill()}, or leave such rows out.",
        )

    def array(self, table: Any, where: Where) -> Array:
        """Convert the rows of a table or a record batch, but leave images as bytes."""
        refuse, values = self._refuse(where), self._filled(values_of_column(table.column(self.name)))
        if not (self.form.is_text or self.form.is_image):
            return numbers_of_column(values, self._shape, refuse)
        texts = bytes_of(values, refuse)
        return self._classes(texts, where) if self._numbers else texts

    def _classes(self, texts: Array, where: Where) -> Array:
        try:
            return np.fromiter(map(self._numbers.__getitem__, texts), np.int32, len(texts))
        except KeyError as error:
            raise changed(f"{where.path}, which has {error} in column {self.name!r}") from error

    def decoded(self, array: Array, where: Callable[[int], Where]) -> Array:
        """Decode images; ``where`` returns the place of each of the rows."""
        return self.images.all(array, lambda row: self._at(where(row))) if self.images else array

    def _refuse(self, where: Where) -> Refuse:
        def refuse(row: int, what: str | None) -> ArgumentError:
            place = Where(where.path, where.row + row)
            return self.missing(place) if what is None else uneven_lists(f"{self._at(place)}: {what}")

        return refuse

    def _at(self, where: Where) -> str:
        return f"column {self.name!r} in row {where.row} of {where.path}"

    def _filled(self, values: Any) -> Any:
        if self._fill is None or not values.null_count:
            return values
        return values.fill_null(self._scalar(values.type))

    def _scalar(self, kind: object) -> Any:
        """Return what stands for missing values, as an Arrow value."""
        import pyarrow as pa

        value: Any = self._fill
        whole = isinstance(value, float) and value.is_integer() and not pa.types.is_floating(kind)
        try:
            return pa.scalar(int(value) if whole else value, kind)  # an R number is a double
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(
                "`fill` must have a value of the type of the column.",
                received=f"{value!r} for column {self.name!r}: {kind}",
                fix="Leave it out: images cannot be filled."
                if self.form.is_image
                else f"Pass {self._example_fill()}, for example.",
            ) from error

    def _example_fill(self) -> str:
        value = "''" if self.form.is_text else "0"
        for _ in self.form.sizes:
            value = f"[{value}, ...]"
        return f"fill={{{self.name!r}: {value}}}"


class _Part:
    """The columns of ``x`` or ``y``: one matrix, one column alone, or a dictionary."""

    def __init__(
        self, columns: list[Column], argument: str, matrix: bool | None, alone: bool = False
    ) -> None:
        odd = next((column for column in columns if not column.form.is_number), None)
        if matrix and odd and not alone:
            raise ArgumentError(
                "`matrix` needs columns of numbers.",
                received=f"matrix=True, and column {odd.name!r} of `{argument}`: {odd.form.words}",
                fix="Leave `matrix` or the column out.",
            )
        self.columns = columns
        self._alone = alone or (len(columns) == 1 and columns[0].images is not None)
        # As for data frames: float64 if float32 would round.
        is_matrix = not self._alone and (odd is None if matrix is None else matrix)
        kinds = (column.form.kind for column in columns)
        self._matrix = np.result_type(np.float32, *kinds) if is_matrix else None
        #: The columns of the leaves, in their order; None for a matrix.
        self.leaves = [None] if is_matrix else sorted(columns, key=lambda column: column.name)

    @property
    def structure(self) -> Any:
        if self._matrix is not None:
            return Leaf(batch_type(self._matrix), (len(self.columns),))
        if self._alone:
            return self.columns[0].leaf
        return {column.name: column.leaf for column in self.columns}

    def arrays(self, table: Any, where: Where) -> list[Array]:
        arrays = {column: column.array(table, where) for column in self.columns}
        if self._matrix is None:
            found = [arrays[column] for column in self.leaves if column is not None]
            return [array.astype(batch_type(array.dtype), copy=False) for array in found]
        stacked = np.empty((table.num_rows, len(arrays)), batch_type(self._matrix))
        for place, array in enumerate(arrays.values()):
            stacked[:, place] = array.astype(self._matrix, copy=False)
        return [stacked]


class FileColumns:
    """The columns of the files, whose first one has this schema, and their conversion."""

    def __init__(self, schema: Any, path: str, wanted: Wanted, first: First = lambda name: None) -> None:
        target = tuple(wanted.targets())
        features = wanted.features
        if features is None:
            features = tuple(name for name in schema.names if name not in target)
        _check_names(features, target, schema, path)
        names = (*features, *target)
        if isinstance(wanted.fill, Mapping):
            _check_fill(wanted.fill, names)
        self.columns = {
            name: Column(name, schema.field(name).type, path, wanted, first)
            for name in names
        }  # fmt: skip
        self.features = features
        self._path = path
        self._check_images(wanted)
        self._parts = [_Part([self.columns[name] for name in features], "features", wanted.matrix)]
        if target:
            targets, alone = [self.columns[name] for name in target], isinstance(wanted.target, str)
            self._parts.append(_Part(targets, "target", wanted.matrix, alone))
        self.structure = tuple(part.structure for part in self._parts)
        self._leaves = [column for part in self._parts for column in part.leaves]

    @property
    def stored(self) -> list[Leaf]:
        """The leaves of an example with images as bytes."""
        pairs = zip(self._leaves, leaves(self.structure), strict=True)
        return [column.stored if column else leaf for column, (_, leaf) in pairs]

    @property
    def has_images(self) -> bool:
        """Return whether a column has images."""
        return any(column.images for column in self.columns.values())

    def check(self, schema: Any, path: str) -> None:
        """Check that a file has the same columns as the first file."""
        for name, column in self.columns.items():
            _check_there(name, schema, path)
            kind = schema.field(name).type
            if form_of_column(kind, f"column {name!r} of {path}") != column.form:
                raise ArgumentError(
                    "A column must have the same type in all files.",
                    received=f"column {name!r} of {path}: {kind}, where {self._path} has {column.form.words}",
                    fix="Write the files with one schema.",
                )

    def arrays(self, table: object, where: Where) -> list[Array]:
        """Convert a table or a record batch, but leave images as bytes."""
        return [array for part in self._parts for array in part.arrays(table, where)]

    def decoded(self, arrays: list[Array], where: Callable[[int], Where]) -> list[Array]:
        """Decode the images of rows; ``where`` returns the place of each of the rows."""
        return [
            column.decoded(array, where) if column else array
            for column, array in zip(self._leaves, arrays, strict=True)
        ]

    def decoded_in_graph(self, parts: list[object]) -> list[Any]:
        """Decode the images of rows in a graph: tensors to tensors."""
        return [
            column.images.in_graph(part) if column and column.images else part
            for column, part in zip(self._leaves, parts, strict=True)
        ]

    def _check_images(self, wanted: Wanted) -> None:
        given = next((one for one in ("image_size", "color_mode") if getattr(wanted, one) is not None), None)
        columns = self.columns.values()
        if given and not any(column.form.is_image for column in columns):
            raise ArgumentError(
                f"`{given}` needs a column of images.",
                received=", ".join(f"column {column.name!r} of {column.form.words}" for column in columns),
                fix=f"Leave `{given}` out. Images are structures with the bytes of an image file.",
            )


def classes_of(name: str, path: str, texts: Iterable[Array]) -> tuple[str, ...]:
    """Return the names of the classes of a column whose values are ``texts``: sorted, as by Python."""
    found: set[bytes] = set()
    for part in texts:
        found.update(part)
    try:
        names = sorted(value.decode() for value in found)
    except UnicodeDecodeError as error:
        raise ArgumentError(
            "A target must hold numbers, or text that names classes.",
            received=f"bytes that are not text in column {name!r} of {path}: {error.object!r}",
            fix="Name another column as `target`.",
        ) from error
    numbers = [value for value in names if _is_number(value)]
    if 0 < len(numbers) < len(names):
        other = next(value for value in names if value not in numbers)
        log.warning(
            "Column %r of %s has numbers and text, such as %r, so its %d values are classes.",
            name, path, other, len(names),
        )  # fmt: skip
    return tuple(names)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_names(features: Sequence[str], target: Sequence[str], schema: Any, path: str) -> None:
    if not features:
        raise ArgumentError(
            "`features` must name at least one column.",
            received=f"none beside the target, of {', '.join(map(repr, schema.names))}",
            fix="Name the columns that the model takes.",
        )
    for name in (*features, *target):
        _check_there(name, schema, path)
    both = next((name for name in features if name in target), None)
    if both is not None:
        raise ArgumentError(
            "A column is a feature or a target, not both.",
            received=f"{both!r} in `features` and in `target`",
            fix="Leave it out of one of them.",
        )


def _check_fill(fill: Mapping[str, object], names: Sequence[str]) -> None:
    unknown = next((name for name in fill if name not in names), None)
    if unknown is not None:
        raise ArgumentError(
            "`fill` must name columns that are read.",
            received=f"{unknown!r}, where {', '.join(map(repr, names))} are read",
            fix="Correct the name, or leave it out.",
        )


def _check_there(name: str, schema: Any, path: str) -> None:
    found = schema.names.count(name)
    if found != 1:
        raise ArgumentError(
            "`features` and `target` must name columns that each file has once.",
            received=f"{name!r}, which {path} has "
            + (f"{found} times" if found else f"not among {', '.join(map(repr, schema.names))}"),
            fix="Correct the name, or write the files with one schema.",
        )

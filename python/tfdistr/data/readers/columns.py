"""The columns of an Arrow table as arrays of a model, treated like those of a data frame.

All features that are numbers become one matrix, as those of a data frame do (``data/source.py``). A column of
images that is the only feature is ``x`` itself. Otherwise the features are a dictionary of columns. Text is
text, a category is its text, and lists are arrays, so all of a column must have one size.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfdistr.data.readers.arrow_tables import (
    ColumnForm,
    Refuse,
    bytes_of,
    form_of,
    numbers_of,
    shape_of,
    type_of_values,
    uneven_lists,
    values_of,
)
from tfdistr.data.readers.blocks import Array, Blocks, Leaf, leaves_of
from tfdistr.data.readers.image_folder import Images
from tfdistr.errors import ArgumentError


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
    """

    features: tuple[str, ...] | None
    target: str | tuple[str, ...] | None
    fill: Any = None
    matrix: bool | None = None
    image_size: tuple[int, int] | None = None
    color_mode: str | None = None


@dataclass(frozen=True)
class Where:
    """The place of rows, for errors: a file, and the number of the first row in it."""

    path: str
    row: int


#: A function that returns the first rows of a column: their place, and an Arrow array; None without rows.
First = Callable[[str], "tuple[Where, Any] | None"]


class FileColumns:
    """The columns of the files, and their conversion.

    Args:
        schema: The schema of the first file, a ``pyarrow.Schema``.
        path: The path of this file.
        first: Reads the first rows of a column. Only lists and images need it.

    Attributes:
        structure: What an example is; see ``Blocks``.
        encoded_structure: The same, with images as bytes.
        images: The decoder of each column with images.

    Raises:
        ArgumentError: A column is missing or twice, or has a type that no model takes.
    """

    def __init__(self, schema: Any, path: str, wanted: Wanted, first: First | None = None) -> None:
        target = (wanted.target,) if isinstance(wanted.target, str) else wanted.target or ()
        if wanted.features is None:
            features = tuple(name for name in schema.names if name not in target)
        else:
            features = wanted.features
        self._check_names(features, target, schema, path)
        self.names = [*features, *target]
        self._forms = {name: _form_in(schema, name, path) for name in self.names}
        self._path, self._fill = path, wanted.fill
        self.images = self._images(wanted, first)
        self._leaves = {name: self._leaf(name, first) for name in self.names}
        parts = [self._part(features, wanted.matrix, "features")]
        if isinstance(wanted.target, str):
            parts.append(_FeaturePart((wanted.target,), alone=True))
        elif target:
            parts.append(self._part(target, wanted.matrix, "target"))
        self._parts = parts
        self.structure = tuple(self._structure(part, self._leaves) for part in parts)
        as_bytes = {name: Leaf(self._forms[name].kind) for name in self.images}
        self.encoded_structure = tuple(self._structure(part, self._leaves | as_bytes) for part in parts)
        self._check_fill(schema)

    def check(self, schema: Any, path: str) -> None:
        """Check that a file has the same columns as the first file."""
        for name in self.names:
            _check_there(name, schema, path)
            if _form_in(schema, name, path) != self._forms[name]:
                raise ArgumentError(
                    "A column must have the same type in all files.",
                    received=f"column {name!r} of {path}: {schema.field(name).type}, "
                    f"where {self._path} has {self._forms[name].words}",
                    fix="Write the files with one schema.",
                )

    def arrays(self, table: Any, where: Where) -> list[Array]:
        """Convert a table or a record batch to the arrays of the leaves."""
        return self.decoded(self.encoded(table, where), lambda row: Where(where.path, where.row + row))

    def encoded(self, table: Any, where: Where) -> list[Array]:
        """Convert a table or a record batch, but leave images as bytes."""
        return [array for part in self._parts for array in self._arrays_of(part, table, where)]

    def decoded(self, arrays: list[Array], where: Callable[[int], Where]) -> list[Array]:
        """Decode the images of rows; ``where`` returns the place of each of the rows."""
        if not self.images:
            return arrays
        names = [name for part in self._parts for name in part.leaves]

        def place_of(name: str) -> Callable[[int], str]:
            return lambda row: self._image_place(name, where(row))

        return [
            self.images[name].all(array, place_of(name)) if name in self.images else array
            for name, array in zip(names, arrays, strict=True)
        ]

    def decoded_in_graph(self, parts: list[Any]) -> list[Any]:
        """Decode the images of rows in a graph: tensors to tensors."""
        names = [name for part in self._parts for name in part.leaves]
        return [
            self.images[name].in_graph(part) if name in self.images else part
            for name, part in zip(names, parts, strict=True)
        ]

    def missing_is_error(self, name: str) -> bool:
        """Return whether a column has no replacement for missing values."""
        return self._filling(name) is None

    def missing(self, name: str, where: Where) -> ArgumentError:
        """Return the error that a value of a column is missing in the row ``where``."""
        return ArgumentError(
            "A column must have a value in each row.",
            received=f"no value of column {name!r} in row {where.row} of {where.path}",
            fix="Leave such rows out."
            if self._forms[name].is_image
            else f"Pass {self._example_fill(name)}, or leave such rows out.",
        )

    # --- The conversion of the columns

    def _images(self, wanted: Wanted, first: First | None) -> dict[str, Images]:
        names = [name for name in self.names if self._forms[name].is_image]
        given = [one for one in ("image_size", "color_mode") if getattr(wanted, one) is not None]
        if given and not names:
            raise ArgumentError(
                f"`{given[0]}` needs a column of images.",
                received=", ".join(f"column {name!r} of {form.words}" for name, form in self._forms.items()),
                fix=f"Leave `{given[0]}` out. Images are structures with the bytes of an image file.",
            )
        made: dict[str, Images] = {}
        for name in names:
            if found := first and first(name):
                where, values = found
                data = bytes_of(values_of(values)[:1], self._refuse(name, where))
                place = self._image_place(name, where)
                made[name] = Images(wanted.image_size, wanted.color_mode or "rgb", data[0], place)
        return made

    def _leaf(self, name: str, first: First | None) -> Leaf:
        form = self._forms[name]
        if name in self.images:
            return self.images[name].leaf
        if None in form.sizes and (found := first and first(name)):
            where, values = found
            return Leaf(
                form.kind, shape_of(form, self._filled(values_of(values), name), self._refuse(name, where))
            )
        return Leaf(form.kind, tuple(size or 0 for size in form.sizes))

    def _part(self, names: tuple[str, ...], matrix: bool | None, argument: str) -> _FeaturePart:
        odd = [name for name in names if not self._forms[name].is_number]
        if matrix and odd:
            raise ArgumentError(
                "`matrix` needs columns of numbers.",
                received=f"matrix=True, and column {odd[0]!r} of `{argument}`: {self._forms[odd[0]].words}",
                fix="Leave `matrix` or the column out.",
            )
        alone = len(names) == 1 and names[0] in self.images
        return _FeaturePart(names, matrix=not odd if matrix is None else matrix, alone=alone)

    def _structure(self, part: _FeaturePart, leaves: Mapping[str, Leaf]) -> Any:
        if part.matrix:
            return Leaf(_batch_type(self._matrix_type(part)), (len(part.names),))
        made = {
            name: leaves[name]
            if name in self.images
            else Leaf(_batch_type(leaves[name].kind), leaves[name].shape)
            for name in part.names
        }
        return next(iter(made.values())) if part.alone else made

    def _matrix_type(self, part: _FeaturePart) -> np.dtype[Any]:
        # As for data frames: float64 if float32 would round.
        return np.result_type(np.float32, *(self._forms[name].kind for name in part.names))

    def _arrays_of(self, part: _FeaturePart, table: Any, where: Where) -> list[Array]:
        arrays = {name: self._array(table, name, where) for name in part.names}
        if part.matrix:
            kind = self._matrix_type(part)
            stacked = np.empty((table.num_rows, len(arrays)), _batch_type(kind))
            for place, array in enumerate(arrays.values()):
                stacked[:, place] = array.astype(kind, copy=False)
            return [stacked]
        return [arrays[name].astype(_batch_type(arrays[name].dtype), copy=False) for name in part.leaves]

    def _array(self, table: Any, name: str, where: Where) -> Array:
        form, refuse = self._forms[name], self._refuse(name, where)
        column = self._filled(values_of(table.column(name)), name)
        if form.is_text or form.is_image:
            return bytes_of(column, refuse)
        return numbers_of(column, self._leaves[name].shape, refuse)

    def _refuse(self, name: str, where: Where) -> Refuse:
        def refuse(row: int, what: str | None) -> ArgumentError:
            place = Where(where.path, where.row + row)
            if what is None:
                return self.missing(name, place)
            return uneven_lists(f"column {name!r} in row {place.row} of {place.path}: {what}")

        return refuse

    @staticmethod
    def _image_place(name: str, where: Where) -> str:
        return f"column {name!r} in row {where.row} of {where.path}"

    # --- The replacement of missing values

    def _filled(self, column: Any, name: str) -> Any:
        value = self._filling(name)
        if value is None or not column.null_count:
            return column
        return column.fill_null(self._scalar(column.type, value, name))

    def _filling(self, name: str) -> Any:
        return self._fill.get(name) if isinstance(self._fill, Mapping) else self._fill

    def _check_fill(self, schema: Any) -> None:
        if not isinstance(self._fill, Mapping):
            return
        for name, value in self._fill.items():
            if name in self._forms:
                self._scalar(type_of_values(schema.field(name).type), value, name)
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
            return pa.scalar(int(value) if whole else value, kind)  # an R number is a double
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(
                "`fill` must have a value of the type of the column.",
                received=f"{value!r} for column {name!r}: {kind}",
                fix="Leave it out: images cannot be filled."
                if self._forms[name].is_image
                else f"Pass {self._example_fill(name)}, for example.",
            ) from error

    def _example_fill(self, name: str) -> str:
        value = "''" if self._forms[name].is_text else "0"
        for _ in self._forms[name].sizes:
            value = f"[{value}, ...]"
        return f"fill={{{name!r}: {value}}}"

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
class _FeaturePart:
    """The columns of ``x`` or ``y``, and their form: one matrix, one column alone, or a dictionary."""

    names: tuple[str, ...]
    matrix: bool = False
    alone: bool = False

    @property
    def leaves(self) -> list[str]:
        """The columns of the leaves, in their order; an empty name for a matrix."""
        return [""] if self.matrix else sorted(self.names)


def _form_in(schema: Any, name: str, path: str) -> ColumnForm:
    return form_of(schema.field(name).type, f"column {name!r} of {path}")


def _check_there(name: str, schema: Any, path: str) -> None:
    found = schema.names.count(name)
    if found != 1:
        raise ArgumentError(
            "`features` and `target` must name columns that each file has once.",
            received=f"{name!r}, which {path} has "
            + (f"{found} times" if found else f"not among {', '.join(map(repr, schema.names))}"),
            fix="Correct the name, or write the files with one schema.",
        )


def _batch_type(kind: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of values in a batch: Keras's type for numbers with a fraction, as for arrays."""
    if kind.kind != "f":
        return kind
    import keras

    floatx: np.dtype[Any] = np.dtype(keras.config.floatx())
    return floatx


#: Rows that are decoded at once, at most, and the bytes that they may take.
_ROWS, _BYTES = 65_536, 64 * 1024 * 1024


class TableBlocks(Blocks):
    """The rows of files of tables, in the order of the files.

    Args:
        places: For each block, its file, and the number of its first row there.
    """

    def __init__(self, columns: FileColumns, places: list[Where], rows: list[int]) -> None:
        self.columns, self.places = columns, places
        self.structure = columns.structure
        self.ends = np.cumsum(rows, dtype=np.int64)
        example = sum(int(np.prod(leaf.shape)) * leaf.kind.itemsize for leaf in leaves_of(self.structure))
        self.together = max(1, min(_ROWS, _BYTES // max(example, 1)))

    @abstractmethod
    def tables(self, block: int) -> Iterator[tuple[Any, Where]]:
        """Read a block: tables of ``together`` rows at most, and their places."""

    def pieces(self, block: int) -> Iterator[list[Array]]:
        """Decode a block."""
        for table, where in self.tables(block):
            yield self.columns.arrays(table, where)

    @property
    def encoded(self) -> Blocks:
        """The rows with images as bytes."""
        return _EncodedTable(self) if self.columns.images else self

    def decoded(self, arrays: list[Array], indices: Array) -> list[Array]:
        """Decode the images of rows."""
        return self.columns.decoded(arrays, lambda row: self.place(int(indices[row])))

    def decoded_in_graph(self, parts: list[Any]) -> list[Any]:
        """Decode the images of rows in a graph."""
        return self.columns.decoded_in_graph(parts)

    def place(self, index: int) -> Where:
        """Return the place of an example."""
        block = int(np.searchsorted(self.ends, index, side="right"))
        place = self.places[block]
        return Where(place.path, place.row + index - self.first(block))


class _EncodedTable(Blocks):
    def __init__(self, source: TableBlocks) -> None:
        self._source = source
        self.structure, self.ends = source.columns.encoded_structure, source.ends

    def pieces(self, block: int) -> Iterator[list[Array]]:
        for table, where in self._source.tables(block):
            yield self._source.columns.encoded(table, where)

"""Arrow tables and columns in memory, and the values of a column: tables are treated as data frames.

Libraries give each other such data without a copy (https://arrow.apache.org/docs/format/CDataInterface.html).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfdistr.data.trees import Array
from tfdistr.errors import ArgumentError
from tfdistr.utils.packages import parquet

_TEXT = np.dtype(object)

#: A function that returns the error for a row and its fault; the fault is None if a value is missing.
Refuse = Callable[[int, str | None], ArgumentError]


@dataclass(frozen=True)
class ColumnForm:
    """The form of a column's values, as far as the type of the column shows it.

    Attributes:
        kind: The type of the numbers; the type of objects for text and images.
        sizes: Of lists, from the outside to the inside: their sizes; None where the type leaves them open.
        is_image: Whether the values are images: a structure with the bytes of an image file.
    """

    kind: np.dtype
    sizes: tuple[int | None, ...] = ()
    is_image: bool = False

    @property
    def is_number(self) -> bool:
        """Return whether each value is one number."""
        return self.kind.kind in "biuf" and not self.sizes

    @property
    def is_text(self) -> bool:
        """Return whether the values are text."""
        return self.kind.hasobject and not self.is_image

    @property
    def words(self) -> str:
        """The form in words, for errors."""
        if self.is_image:
            return "images"
        lists = "".join("lists of " if size is None else f"lists of {size} " for size in self.sizes)
        return lists + ("text" if self.is_text else self.kind.name)


def form_of_column(column: object, where: str) -> ColumnForm:
    """Return the form of a column."""
    import pyarrow as pa

    kind = type_of_values(column)
    sizes: list[int | None] = []
    while True:
        if pa.types.is_fixed_size_list(kind):
            sizes.append(kind.list_size)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            sizes.append(None)
        else:
            break
        kind = type_of_values(kind.value_type)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return ColumnForm(np.dtype(kind.to_pandas_dtype()), tuple(sizes))
    if not sizes and _is_text(kind):
        return ColumnForm(_TEXT)
    if not sizes and _is_image(kind):
        return ColumnForm(_TEXT, is_image=True)
    raise ArgumentError(
        "A column must hold numbers, logical values, text, categories, images, or lists of numbers.",
        received=f"{where}: {column}",
        fix="Leave the column out, or convert it to one of these.",
    )


def type_of_values(kind: Any) -> Any:
    """Return the type of a column's values: of its categories, or the storage type of an Arrow extension."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def values_of_column(column: Any) -> Any:
    """Return the values of a column: one array, without categories and Arrow extensions."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        categories = column.dictionary
        if _is_view(categories.type):  # pyarrow 26 cannot look up such values
            as_text = categories.type == pa.string_view()
            categories = categories.cast(pa.large_string() if as_text else pa.large_binary())
            column = pa.DictionaryArray.from_arrays(column.indices, categories)
        column = column.cast(categories.type)
    return column


def numbers_of_column(column: Any, shape: tuple[int, ...], refuse: Refuse) -> Array:
    """Return numbers, or lists of numbers, as one array."""
    rows, in_row = len(column), 1
    for size in shape:
        _check_there(column, in_row, refuse)
        lengths = _lengths(column)
        if lengths is not None and (lengths != size).any():
            place = int(np.flatnonzero(lengths != size)[0])
            raise refuse(
                place // in_row, f"a list of {lengths[place]}, where the first row has one of {size}"
            )
        column = values_of_column(column.flatten())
        in_row *= size
    _check_there(column, in_row, refuse)
    array: Array = column.to_numpy(zero_copy_only=False)
    return array.reshape(rows, *shape)


def shape_of(form: ColumnForm, column: Any, refuse: Refuse) -> tuple[int, ...]:
    """Return the shape of an example; the first row determines the sizes that the type leaves open."""
    shape = []
    column = column[:1]
    for size in form.sizes:
        _check_there(column, 1, refuse)
        shape.append(size if size is not None else int(_lengths(column)[0]) if len(column) else 0)
        column = values_of_column(column.flatten())[:1]
    return tuple(shape)


def bytes_of(column: Any, refuse: Refuse) -> Array:
    """Return text or images as an array of bytes."""
    import pyarrow as pa

    _check_there(column, 1, refuse)
    if pa.types.is_struct(column.type):
        column = column.field("bytes")
        _check_there(column, 1, refuse)
    large = not (pa.types.is_string(column.type) or pa.types.is_binary(column.type))
    array: Array = column.cast(pa.large_binary() if large else pa.binary()).to_numpy(zero_copy_only=False)
    return array.astype(object, copy=False)


def uneven_lists(received: str) -> ArgumentError:
    """Return the error for lists of several sizes."""
    return ArgumentError(
        "All lists of a column must have one size.",
        received=received,
        fix="Pad the lists to one size, or leave the column out.",
    )


def _lengths(column: Any) -> Any:
    """Return the sizes of lists; None if the type has one size."""
    import pyarrow as pa

    if pa.types.is_fixed_size_list(column.type):
        return None
    return column.value_lengths().to_numpy(zero_copy_only=False)


def _check_there(column: Any, in_row: int, refuse: Refuse) -> None:
    if column.null_count:
        raise refuse(int(np.flatnonzero(column.is_null())[0]) // in_row, None)


def _is_text(kind: object) -> bool:
    import pyarrow as pa

    tests = pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary
    return any(test(kind) for test in tests) or _is_view(kind)


def _is_view(kind: object) -> bool:
    """Return whether values are text or bytes in polars's form."""
    import pyarrow as pa

    return kind in (pa.string_view(), pa.binary_view())


def _is_image(kind: Any) -> bool:
    """Return whether the values are images as Hugging Face's datasets have them."""
    import pyarrow as pa

    if not pa.types.is_struct(kind) or not {one.name for one in kind} <= {"bytes", "path"}:
        return False
    place = kind.get_field_index("bytes")
    return place >= 0 and _is_text(kind[place].type)


def from_arrow(value: object, name: str) -> Any:
    """Return Arrow data as a table or column of pyarrow, once read from a stream; other values unchanged."""
    _refuse_dataset(value, name)
    hugging_face: Any = getattr(sys.modules.get("datasets"), "Dataset", ())
    if isinstance(value, hugging_face):
        value = value.with_format("arrow")[:]
    of_column, of_stream = (hasattr(value, f"__arrow_c_{what}__") for what in ("array", "stream"))
    # pandas objects have these methods, too, but are data frames.
    if not (of_column or of_stream) or type(value).__module__.partition(".")[0] == "pandas":
        return value
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
    """Read the ``ArrowArrayStream`` at this address, a number in text, to its end, and release it."""
    return from_arrow(_Stream(int(address)), name)


def is_arrow(value: object, kind: str) -> bool:
    """Return whether a value is of a class of pyarrow, "Table" or "ChunkedArray"."""
    pyarrow = sys.modules.get("pyarrow")  # it has been imported where there is a table
    return pyarrow is not None and isinstance(value, getattr(pyarrow, kind))


def array_of_column(column: Any, name: str, of_table: str | None = None) -> Array:
    """Return a column as an array."""
    where = f"`{name}`" if of_table is None else f"column {of_table!r} of `{name}`"
    form = form_of_column(column.type, where)
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

    values = values_of_column(column)
    return numbers_of_column(values, shape_of(form, values, refuse), refuse)


def _refuse_dataset(value: object, name: str) -> None:
    """Refuse a data set of pyarrow, and those of Hugging Face that are no table."""
    refused = {
        "pyarrow.dataset": (
            ("Dataset",), 'load_dataset("parquet", files=dataset.files, target="y"), or its to_table()',
        ),
        "datasets": (
            ("DatasetDict", "IterableDataset", "IterableDatasetDict"),
            'a Dataset, such as data["train"] of a DatasetDict',
        ),
    }  # fmt: skip
    for module, (kinds, instead) in refused.items():
        if any(isinstance(value, getattr(sys.modules.get(module), kind, ())) for kind in kinds):
            raise ArgumentError(
                f"`{name}` must be a table in memory, or files by their names.",
                received=f"an object of class {type(value).__module__}.{type(value).__name__}",
                fix=f"Pass {instead}.",
            )

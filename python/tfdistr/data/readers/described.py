"""Descriptions of data sets in files: names and arguments, which each worker opens."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdistr.data.datasets import Dataset
from tfdistr.data.readers.blocks import Blocks, joined
from tfdistr.data.readers.image_folder import ImageFolder, find_folder, image_options
from tfdistr.data.readers.paths import changed, find_files, sizes_of
from tfdistr.data.readers.record_files import ArrayRecordExamples, TFRecordExamples, example_options
from tfdistr.data.readers.tables import ArrowTables, CsvTables, ParquetTables, scan
from tfdistr.data.trees import filled
from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import check_bool
from tfdistr.utils.describe import describe

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class FileDataset(Dataset):
    """A data set in files of a format. ``load_dataset()`` makes one.

    Attributes:
        files: The absolute paths of the files, in the order of the examples.
        sizes: Their sizes in bytes.
        options: The arguments of the format.
        examples: Number of examples.
        of_source: Further values that must be the same when the files are opened.
    """

    files: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    examples: int = 0
    of_source: str = ""

    def open(self) -> Blocks:
        """Open the files."""
        options = {**self.options, "classes": self.levels} if self.levels else self.options
        source = FORMATS[self.name].reader(self.files, self.sizes, **options)
        if source.identity != self.of_source:
            raise changed(f"{self.files[0]}, which has other files than before")
        return source

    @property
    def identity(self) -> str:
        """Return the identity of the data, which is the same on all machines and in both languages."""
        names = [os.path.basename(path) for path in self.files]
        parts = [
            names,
            self.sizes,
            self.of_source,
            {name: _plain(value) for name, value in self.options.items()},
            _plain(self.levels),
        ]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:12]
        return f"the data set {self.name!r}, {self.examples} examples, {len(names)} files, {digest}"

    def arrays(self) -> Any:
        """Return all examples as NumPy arrays: ``(x, y)``, or ``x`` if there is no target."""
        source = self.open()
        pieces = [arrays for block in range(len(source.ends)) for _, arrays in source.examples(block)]
        parts = joined(pieces, source.leaves)
        made = filled(source.structure, iter(map(_as_text, parts)))
        return made if len(made) > 1 else made[0]

    def dataset(self) -> tf.data.Dataset:
        """Return the examples, not batched, in the order of the files, as a ``tf.data.Dataset``."""
        import tensorflow as tf

        source = self.open()
        specs = [tf.TensorSpec((None, *leaf.shape), leaf.kind) for leaf in source.leaves]
        structure = source.structure if len(source.structure) > 1 else source.structure[0]

        def blocks() -> Iterator[Any]:
            for block in range(len(source.ends)):
                for _, arrays in source.examples(block):
                    yield filled(structure, iter(arrays))

        signature = filled(structure, iter(specs))
        return tf.data.Dataset.from_generator(blocks, output_signature=signature).unbatch()


@dataclass(frozen=True)
class Format:
    """A format of files: its reader, the check of its arguments, and how files are found and described.

    ``reader`` opens files, whose sizes are empty if they are not known.
    """

    reader: Callable[..., Blocks]
    options: Callable[..., dict[str, Any]]
    endings: tuple[str, ...] = ()
    find: Callable[[Any], tuple[str, ...]] | None = None
    prepare: Callable[[tuple[str, ...], dict[str, Any]], dict[str, Any]] | None = None


def describe_files(name: str, files: object = None, **arguments: object) -> FileDataset:
    """Describe a data set in files; see ``load_dataset()``."""
    kind = FORMATS[name]
    options = kind.options(**arguments)
    found = kind.find(files) if kind.find else find_files(files, kind.endings)
    if kind.prepare:
        options = kind.prepare(found, options)
    source = kind.reader(found, (), **options)
    if not len(source):
        raise ArgumentError(
            "`files` must hold at least one example.",
            received=f"0 examples in {len(found)} files",
            fix="Pass data to train on.",
        )
    source.check()
    return FileDataset(
        name, files=found, sizes=() if kind.find else sizes_of(found), options=options,
        examples=len(source), of_source=source.identity, columns_of_inputs=source.columns_of_inputs,
        levels=source.classes(),
    )  # fmt: skip


def table_options(
    features: object = None, target: object = None, fill: object = None, matrix: object = None
) -> dict[str, Any]:
    """Check the arguments of the formats of tables."""
    if fill is not None and not isinstance(fill, Mapping | bool | int | float | str):
        raise ArgumentError(
            "`fill` must be a value for all columns, or a dictionary with a value for each column.",
            received=describe(fill),
            fix='Pass fill={"age": 0}, for example.',
        )
    return {
        "features": None if features is None else _names("features", features),
        "target": target if target is None or isinstance(target, str) else _names("target", target),
        "fill": fill,
        "matrix": None if matrix is None else check_bool("matrix", matrix),
    }


def _image_table_options(
    image_size: object = None, color_mode: object = None, **arguments: object
) -> dict[str, Any]:
    given = {"image_size": image_size, "color_mode": color_mode}
    checked = image_options(**given)
    return {
        **table_options(**arguments),
        **{name: checked[name] for name, value in given.items() if value is not None},
    }


def _names(argument: str, names: object) -> tuple[str, ...]:
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) and one for one in listed):
        raise ArgumentError(
            f"`{argument}` must be the name of a column, or a list of names.",
            received=describe(names),
            fix=f'Pass {argument}=["height", "weight"], for example.',
        )
    twice = next((one for place, one in enumerate(listed) if one in listed[:place]), None)
    if twice is not None:
        raise ArgumentError(
            f"`{argument}` must name each column once.",
            received=f"{twice!r} more than once",
            fix="Leave it out once.",
        )
    return tuple(listed)


def _plain(value: object) -> Any:
    """Return a value in a form for both languages: an R whole number is a double."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_text(array: Any) -> Any:
    if array.dtype != object:
        return array
    made = np.empty(len(array), object)
    made[:] = [_decoded(value) for value in array]
    return made


def _decoded(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _csv_options(delimiter: object = None, **arguments: object) -> dict[str, Any]:
    if delimiter is not None and not (isinstance(delimiter, str) and len(delimiter) == 1):
        raise ArgumentError(
            "`delimiter` must be the character between two values.",
            received=repr(delimiter),
            fix="Pass delimiter=';', for example.",
        )
    return {**table_options(**arguments), "delimiter": delimiter or ","}


#: The formats by name.
FORMATS = {
    "parquet": Format(ParquetTables, _image_table_options, (".parquet", ".pq")),
    "csv": Format(CsvTables, _csv_options, (".csv", ".tsv", ".txt"), prepare=scan),
    "arrow": Format(ArrowTables, _image_table_options, (".arrow", ".feather")),
    "image_folder": Format(ImageFolder, image_options, find=find_folder),
    "tfrecord": Format(TFRecordExamples, example_options, (".tfrecord", ".tfrecords")),
    "arrayrecord": Format(ArrayRecordExamples, example_options, (".arrayrecord", ".array_record")),
}

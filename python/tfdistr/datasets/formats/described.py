"""Descriptions of data sets in files: names and arguments, which each worker opens."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdistr._utils.arguments import flag
from tfdistr._utils.describe import describe
from tfdistr.datasets import Dataset
from tfdistr.datasets.formats.blocks import Blocks, leaves_of
from tfdistr.datasets.formats.columns import Wanted
from tfdistr.datasets.formats.paths import find_files, sizes_of
from tfdistr.errors import ArgumentError

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
    """

    files: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    examples: int = 0

    def open(self) -> Blocks:
        """Open the files.

        Raises:
            ArgumentError: A file has changed, or is damaged.
        """
        opened: Blocks = _OPEN[self.name](self.files, self.sizes, self.options)
        return opened

    @property
    def identity(self) -> str:
        """What the same data is on all machines and in both languages."""
        names = [os.path.basename(path) for path in self.files]
        parts = [names, self.sizes, {name: _plain(value) for name, value in self.options.items()}]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:12]
        return f"the data set {self.name!r}, {self.examples} examples, {len(names)} files, {digest}"

    def arrays(self) -> Any:
        """Return all examples as NumPy arrays: ``(x, y)``, or ``x`` if there is no target.

        Raises:
            ArgumentError: A file has changed or is damaged, or a value is missing.
        """
        source = self.open()
        read = [source.read(block) for block in range(len(source.ends))]
        leaves = leaves_of(source.structure)
        parts = [
            np.concatenate([np.empty((0, *leaf.shape), leaf.kind), *(block[place] for block in read)])
            for place, leaf in enumerate(leaves)
        ]
        made = pack(source.structure, iter(map(_as_text, parts)))
        return made if len(made) > 1 else made[0]

    def dataset(self) -> tf.data.Dataset:
        """Return the examples, not batched, in the order of the files, as a ``tf.data.Dataset``."""
        import tensorflow as tf

        source = self.open()
        specs = [tf.TensorSpec((None, *leaf.shape), leaf.kind) for leaf in leaves_of(source.structure)]
        structure = source.structure if len(source.structure) > 1 else source.structure[0]

        def blocks() -> Iterator[Any]:
            for block in range(len(source.ends)):
                for piece in source.pieces(block):
                    yield pack(structure, iter(piece))

        signature = pack(structure, iter(specs))
        return tf.data.Dataset.from_generator(blocks, output_signature=signature).unbatch()

    def fits_in_memory(self, opened: Blocks | None = None) -> bool:
        """Return whether all decoded examples fit into ``IN_MEMORY_BYTES``; False if they have text."""
        from tfdistr import datasets

        leaves = leaves_of((opened or self.open()).structure)
        if any(leaf.is_text for leaf in leaves):
            return False
        example = sum(int(np.prod(leaf.shape)) * leaf.kind.itemsize for leaf in leaves)
        return self.examples * example <= datasets.IN_MEMORY_BYTES


def pack(structure: Any, values: Iterator[Any]) -> Any:
    """Put values in the places of the leaves of a structure."""
    if isinstance(structure, Mapping):
        parts = {key: pack(structure[key], values) for key in sorted(structure)}
        return {key: parts[key] for key in structure}
    if isinstance(structure, tuple):
        return tuple(pack(part, values) for part in structure)
    return next(values)


def describe_files(name: str, files: Any, **options: Any) -> FileDataset:
    """Describe a data set in files; see ``load_dataset()``.

    Raises:
        ArgumentError: An argument is not valid, or the files are not.
    """
    found = find_files(files, ENDINGS[name])
    checked = _OPTIONS[name](**options)
    source = _OPEN[name](found, (), checked)
    source.check_missing()
    if not len(source):
        raise ArgumentError(
            "`files` must hold at least one example.",
            received=f"0 examples in {len(found)} files",
            fix="Pass data to train on.",
        )
    return FileDataset(name, files=found, sizes=sizes_of(found), options=checked, examples=len(source))


def table_options(
    features: Any = None, target: Any = None, fill: Any = None, matrix: Any = None
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
        "matrix": None if matrix is None else flag("matrix", matrix),
    }


def _names(argument: str, names: Any) -> tuple[str, ...]:
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


def _plain(value: Any) -> Any:
    """A value as both languages have it: a whole number of R is a double."""
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


def _open_parquet(files: Any, sizes: Any, options: Mapping[str, Any]) -> Blocks:
    from tfdistr.datasets.formats.parquet import ParquetBlocks

    return ParquetBlocks(files, sizes, Wanted(**options))


Open = Callable[[tuple[str, ...], tuple[int, ...], Mapping[str, Any]], Any]
_OPEN: dict[str, Open] = {"parquet": _open_parquet}
_OPTIONS: dict[str, Callable[..., dict[str, Any]]] = {"parquet": table_options}
#: The endings of the files of each format.
ENDINGS = {"parquet": (".parquet", ".pq")}

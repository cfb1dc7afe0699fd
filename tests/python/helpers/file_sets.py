"""The same examples in files of each format, and in arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tfdistr

EXAMPLES = 103


class FileSet(NamedTuple):
    """A data set in files: the arguments of ``load_dataset()``, and its examples as arrays ``(x, y)``."""

    arguments: dict[str, Any]
    arrays: tuple[Any, ...]

    def described(self) -> Any:
        return tfdistr.load_dataset(**self.arguments)


def columns() -> dict[str, np.ndarray]:
    """Columns of numbers of several types, of text and of logical values."""
    draw = np.random.default_rng(7)
    return {
        "height": draw.normal(size=EXAMPLES),
        "age": draw.integers(0, 90, EXAMPLES, np.int32),
        "weight": draw.normal(size=EXAMPLES).astype(np.float32),
        "word": np.array([f"word {i} é" for i in range(EXAMPLES)], object),
        "member": draw.integers(0, 2, EXAMPLES).astype(bool),
        "label": draw.integers(0, 5, EXAMPLES),
    }


def matrix(*names: str) -> np.ndarray:
    """Columns of numbers, as those of a data frame become a matrix."""
    return np.stack([columns()[name].astype(np.float64) for name in names], axis=1)


NUMBERS = ("height", "age", "weight", "member")


def write_parquet(folder: Path, table: Any = None, rows: int = 17) -> list[str]:
    """Write three files with row groups of at most ``rows`` rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns()) if table is None else table
    paths = []
    for number, (first, end) in enumerate([(0, 40), (40, 41), (41, EXAMPLES)]):
        paths.append(str(folder / f"part-{number}.parquet"))
        pq.write_table(table.slice(first, end - first), paths[-1], row_group_size=rows)
    return paths


def parquet_numbers(folder: Path) -> FileSet:
    write_parquet(folder)
    arguments = {"name": "parquet", "files": folder, "features": list(NUMBERS), "target": "label"}
    return FileSet(arguments, (matrix(*NUMBERS), columns()["label"]))


def parquet_mixed(folder: Path) -> FileSet:
    names = ["word", "height", "member"]
    arguments = {"name": "parquet", "files": write_parquet(folder), "features": names, "target": "label"}
    return FileSet(arguments, ({name: columns()[name] for name in names}, columns()["label"]))


SETS: dict[str, Callable[[Path], FileSet]] = {
    "parquet": parquet_numbers,
    "parquet with text": parquet_mixed,
}

"""The files of a prediction: each worker writes its outputs, and the caller reads them in order."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfdistr.errors import ArgumentError, TfdistrError
from tfdistr.utils.disk import writing
from tfdistr.utils.packages import parquet

#: The folder of the outputs in the run directory.
FOLDER = "predictions"
#: Bytes of outputs that a worker holds before it writes them.
CHUNK_BYTES = 64 * 2**20


class Writer:
    """A writer of a worker's outputs, each of them a structure of arrays."""

    def __init__(self, folder: Path, worker: int) -> None:
        self._folder, self._worker = folder, worker
        self._chunk = 0
        self._bytes = 0
        self._waiting: list[list[np.ndarray]] = []

    def write(self, outputs: object) -> None:
        """Write the outputs of a batch, at once or with later ones."""
        arrays: list[np.ndarray] = []
        structure = _numbered(outputs, arrays)
        if not self._chunk and not self._waiting:
            path = Path(self._folder, f"structure-{self._worker:05d}.json")
            with _writing(path):
                path.write_text(json.dumps(structure))
        self._waiting.append(arrays)
        self._bytes += sum(array.nbytes for array in arrays)
        if self._bytes >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered outputs."""
        for leaf, parts in enumerate(zip(*self._waiting, strict=True)):
            name = f"{leaf:05d}-{self._worker:05d}-{self._chunk:05d}.npy"
            whole = np.concatenate(parts)
            with _writing(self._folder / name, whole.nbytes):
                np.save(self._folder / name, whole)
        self._chunk += 1
        self._bytes = 0
        self._waiting.clear()


def files_of(folder: Path) -> list[list[Path]]:
    """Return the files that the workers wrote, for each output, in the order of the data."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.npy")):
        found.setdefault(path.name.partition("-")[0], []).append(path)
    if not found:
        raise ArgumentError(
            "`x` must hold at least one example.", received="0 examples", fix="Pass data to predict for."
        )
    return list(found.values())


def in_structure(folder: Path, leaves: Sequence[object]) -> Any:
    """Return the leaves in the structure of the outputs."""
    return _filled(json.loads(min(folder.glob("structure-*.json")).read_text()), leaves)


def write_parquet(written: Path, folder: Path) -> list[Path]:
    """Write the outputs as parquet files: a row for each example, a column for each output.

    A column has numbers, or lists of a fixed length (for outputs of more dimensions: lists of lists).
    """
    pyarrow, files = parquet('`output_format="parquet"`')
    outputs = files_of(written)
    names = _column_names(in_structure(written, list(range(len(outputs)))))
    paths = []
    for number, parts in enumerate(zip(*outputs, strict=True)):
        columns = {names[leaf]: _column(pyarrow, np.load(part)) for leaf, part in enumerate(parts)}
        paths.append(folder / f"predictions-{number:05d}.parquet")
        with _writing(paths[-1]):
            files.write_table(pyarrow.table(columns), paths[-1])
    return paths


def _writing(path: Path, size: int | None = None) -> contextlib.AbstractContextManager[None]:
    needed = None if size is None else lambda: size
    return writing(path, "Predictions", needed=needed, fix="Make room, or name an `output` on another disk.",
                   kind=TfdistrError)  # fmt: skip


def _column(pyarrow: Any, array: np.ndarray) -> Any:
    column = pyarrow.array(array.reshape(-1))
    lengths = array.shape[1:] if array.shape[1:] != (1,) else ()
    for length in reversed(lengths):
        column = pyarrow.FixedSizeListArray.from_arrays(column, length)
    return column


def _column_names(structure: Any, path: tuple[str, ...] = ()) -> dict[int, str]:
    """Return the name of the column of each leaf: its path in the structure."""
    if isinstance(structure, int):
        return {structure: ".".join(path) or "predictions"}
    parts = structure if isinstance(structure, dict) else {str(at): part for at, part in enumerate(structure)}
    return {
        leaf: name for key, part in parts.items() for leaf, name in _column_names(part, (*path, key)).items()
    }


def _numbered(outputs: object, arrays: list[np.ndarray]) -> Any:
    if isinstance(outputs, dict):
        return {name: _numbered(part, arrays) for name, part in outputs.items()}
    if isinstance(outputs, list | tuple):
        return [_numbered(part, arrays) for part in outputs]
    arrays.append(np.asarray(outputs))
    return len(arrays) - 1


def _filled(structure: Any, leaves: Sequence[object]) -> Any:
    if isinstance(structure, dict):
        return {name: _filled(part, leaves) for name, part in structure.items()}
    if isinstance(structure, list):
        return [_filled(part, leaves) for part in structure]
    return leaves[structure]

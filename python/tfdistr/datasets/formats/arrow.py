"""Arrow files, also those of data sets of Hugging Face: a block is a record batch, mapped into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfdistr._utils.optional_imports import parquet
from tfdistr.datasets.formats.blocks import Array, Blocks
from tfdistr.datasets.formats.columns import Columns, Wanted, Where
from tfdistr.datasets.formats.paths import open_all
from tfdistr.datasets.formats.said import damaged, said


class ArrowBlocks(Blocks):
    """The rows of Arrow files (IPC, as files or as streams), in the order of the files.

    Args:
        files: The paths.
        sizes: The sizes of the files, if they were described before; else an empty sequence.
        wanted: The columns.

    Raises:
        ArgumentError: A file is damaged or has changed, or a column is not in it or has another type.
    """

    def __init__(self, files: Sequence[str], sizes: Sequence[int], wanted: Wanted) -> None:
        self._files = open_all(files, sizes)
        self._batches: list[tuple[int, int, Any]] = []  # file, first row in the file, record batch
        for number, file in enumerate(self._files):
            table = _open(file.path)
            if not number:
                self._columns = Columns(table.schema, file.path, wanted)
            self._columns.check(table.schema, file.path)
            row = 0
            for batch in table.select(self._columns.names).to_batches():
                self._batches.append((number, row, batch))
                row += batch.num_rows
        self.structure = self._columns.structure
        self.ends = np.cumsum([batch.num_rows for *_, batch in self._batches], dtype=np.int64)

    def check(self) -> None:
        """Look for missing values, whose numbers the files tell."""
        for number, row, batch in self._batches:
            for name in self._columns.names:
                if batch.column(name).null_count and self._columns.missing_is_error(name):
                    self._columns.arrays(batch, Where(self._files[number].path, row))

    def pieces(self, block: int) -> Iterator[list[Array]]:
        """Convert a record batch."""
        number, row, batch = self._batches[block]
        self._files[number].check()
        yield self._columns.arrays(batch, Where(self._files[number].path, row))


def _open(path: str) -> Any:
    pyarrow, _ = parquet('load_dataset("arrow")')
    try:
        mapped = pyarrow.memory_map(path)
        try:
            return pyarrow.ipc.open_file(mapped).read_all()
        except pyarrow.ArrowInvalid:  # data sets of Hugging Face are streams
            mapped.seek(0)
            return pyarrow.ipc.open_stream(mapped).read_all()
    except (pyarrow.ArrowException, OSError) as error:
        raise damaged("Arrow files", f"{path}: {said(error)}") from error


def open_arrow(files: Any, sizes: Any, options: Mapping[str, Any]) -> ArrowBlocks:
    """Open the files that are described."""
    return ArrowBlocks(files, sizes, Wanted(**options))

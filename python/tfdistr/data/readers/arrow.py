"""Arrow files, also Hugging Face data sets: a block is a record batch, mapped into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfdistr.data.readers.columns import FileColumns, TableBlocks, Wanted, Where
from tfdistr.data.readers.paths import damaged, first_line, open_all
from tfdistr.utils.packages import parquet

#: Number of images that are checked before a job starts.
_LOOKED_AT = 32


class ArrowBlocks(TableBlocks):
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
        opened = [(number, file.path, _open(file.path)) for number, file in enumerate(self._files)]

        def first(name: str) -> tuple[Where, Any] | None:
            return next(
                ((Where(path, 0), table.column(name)[:1]) for _, path, table in opened if len(table)), None
            )

        columns = FileColumns(opened[0][2].schema, files[0], wanted, first)
        self._batches: list[tuple[int, Any]] = []  # file, record batch
        places = []
        for number, path, table in opened:
            columns.check(table.schema, path)
            row = 0
            for batch in table.select(columns.names).to_batches():
                self._batches.append((number, batch))
                places.append(Where(path, row))
                row += batch.num_rows
        super().__init__(columns, places, [batch.num_rows for _, batch in self._batches])

    def check(self) -> None:
        """Check for missing values, whose numbers are in the files, and decode some of the images."""
        for (_, batch), where in zip(self._batches, self.places, strict=True):
            for name in self.columns.names:
                if batch.column(name).null_count and self.columns.missing_is_error(name):
                    self.columns.encoded(batch, where)
        if self.columns.images:
            for index in np.linspace(0, len(self) - 1, min(_LOOKED_AT, len(self)), dtype=int).tolist():
                block = int(np.searchsorted(self.ends, index, side="right"))
                row = self._batches[block][1].slice(index - self.first(block), 1)
                self.columns.arrays(row, self.place(index))

    def tables(self, block: int) -> Iterator[tuple[Any, Where]]:
        """Take a record batch from the mapped file."""
        (number, batch), place = self._batches[block], self.places[block]
        self._files[number].check()
        for first in range(0, batch.num_rows, self.together):
            yield batch.slice(first, self.together), Where(place.path, place.row + first)


def _open(path: str) -> Any:
    pyarrow, _ = parquet('load_dataset("arrow")')
    try:
        mapped = pyarrow.memory_map(path)
        try:
            return pyarrow.ipc.open_file(mapped).read_all()
        except pyarrow.ArrowInvalid:  # Hugging Face data sets are streams
            mapped.seek(0)
            return pyarrow.ipc.open_stream(mapped).read_all()
    except (pyarrow.ArrowException, OSError) as error:
        raise damaged("Arrow files", f"{path}: {first_line(error)}") from error


def open_arrow(files: Any, sizes: Any, options: Mapping[str, Any]) -> ArrowBlocks:
    """Open the files that are described."""
    return ArrowBlocks(files, sizes, Wanted(**options))

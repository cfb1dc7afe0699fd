"""ArrayRecord files, which give a record by its number. The package array_record reads them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from tfdistr.data.readers.examples import Examples
from tfdistr.data.readers.paths import damaged, first_line, open_all
from tfdistr.utils.packages import array_record

_KIND = "ArrayRecord files"


class ArrayRecordExamples(Examples):
    """The examples of ArrayRecord files.

    Args:
        files: The paths.
        sizes: The sizes of the files, if they were described before; else an empty sequence.
        features: The features of an example.
        target: The names of the features of ``y``.

    Raises:
        ArgumentError: A file has changed or is damaged, or array_record is not installed.
    """

    def __init__(
        self, files: Sequence[str], sizes: Sequence[int], features: dict[str, dict[str, Any]], target: Any
    ) -> None:
        opened = open_all(files, sizes)
        self._readers = [_open(path) for path in files]
        self._lock = threading.Lock()
        super().__init__(opened, [reader.num_records() for reader in self._readers], features, target)

    def records(self, file: int, numbers: Sequence[int]) -> Sequence[bytes]:
        """Return records of a file."""
        with self._lock:
            try:
                found: Sequence[bytes] = self._readers[file].read(list(numbers))
            except (RuntimeError, IndexError, ValueError) as error:
                where = f"{self._files[file].path}, records {list(numbers)[:5]}"
                raise damaged(_KIND, f"{where}: {first_line(error)}") from error
        return found


def _open(path: str) -> Any:
    reader = array_record('load_dataset("arrayrecord")').ArrayRecordReader(path)
    if not reader.ok():
        raise damaged(_KIND, f"{path}, which has no list of its records at its end")
    return reader


def open_arrayrecord(files: Any, sizes: Any, options: Mapping[str, Any]) -> ArrayRecordExamples:
    """Open the files that are described."""
    return ArrayRecordExamples(files, sizes, **options)

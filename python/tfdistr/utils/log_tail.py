"""Lines that other processes write.

Programs that run by their path read this file by its path, so it uses the standard library only.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

LONGEST = 1 << 24
"""Bytes of a partial line that are kept."""
_LAST_BYTES = 65536
# What TensorFlow logs on a machine without a GPU, in two forms, and what abseil logs before that.
_OF_CUDA = re.compile(
    r"([IWE]\d{4} [\d:.]+ +\d+ |\d{4}-\d\d-\d\d [\d:.]+: [IWE] \S*/)cud\w+\.cc:\d+\]"
    r"|WARNING: All log messages before absl::"
)


class LineReader:
    """A splitter of bytes into lines. It keeps a partial line until the rest arrives.

    Bytes that are not UTF-8 are replaced. If a progress bar wrote over a line with carriage returns, only its
    last text is returned.

    Args:
        longest: The most bytes of a partial line that are kept; a longer one loses its beginning.
    """

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._rest = b""

    def take(self, new: bytes, *, final: bool = False) -> list[str]:
        """Add bytes, and return the lines that they complete; if ``final``, also the text after them."""
        *whole, self._rest = (self._rest + new).split(b"\n")
        if final and self._rest:
            whole, self._rest = [*whole, self._rest], b""
        self._rest = self._rest[-self._longest :]
        return [_text(line) for line in whole]


class Tail:
    """A reader of the lines that other processes append to a file, which need not exist yet."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.lost = False
        self._offset = 0
        self._lines = LineReader()

    def lines(self, *, final: bool = False) -> list[str]:
        """Read the lines that were completed since the last call; if ``final``, also the text after them."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except (FileNotFoundError, NotADirectoryError):
            new = b""
            self.lost = self._offset > 0
        self._offset += len(new)
        return self._lines.take(new, final=final)


def is_about_cuda(line: str) -> bool:
    """Return whether TensorFlow has written a line when it looked for CUDA: a log keeps it, unseen."""
    return _OF_CUDA.match(line) is not None


def last_lines(path: str | os.PathLike[str], count: int) -> list[str]:
    """Read the last lines of a log, if there is one, without empty ones and those that look for CUDA."""
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _LAST_BYTES, 0))
            lines = [_text(line) for line in file.read().split(b"\n")]
    except FileNotFoundError:
        return []
    return [line for line in lines if line.strip() and not is_about_cuda(line)][-count:]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]

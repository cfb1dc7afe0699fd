"""The files of a data set: their names, changes, and errors."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from typing import Any

from tfdistr.errors import ArgumentError

_MAGIC = frozenset("*?[")


def find_files(files: Any, endings: Sequence[str]) -> tuple[str, ...]:
    """Return the absolute paths of files: those of a pattern or a folder are sorted by name."""
    given = list(files) if isinstance(files, list | tuple) else [files]
    if not given or not all(isinstance(one, str | os.PathLike) and os.fspath(one) for one in given):
        raise ArgumentError(
            "`files` must be a path, a pattern, or a list of them.",
            received=repr(files),
            fix=f'Pass files="data/*{endings[0]}", for example.',
        )
    return tuple(os.path.abspath(path) for one in given for path in _files_of(os.fspath(one), endings))


def _files_of(path: str, endings: Sequence[str]) -> list[str]:
    if os.path.isfile(path):  # also where its name has a "["
        return [path]
    if os.path.isdir(path):
        names = (name for name in os.listdir(path) if name.endswith(tuple(endings)) and name[0] not in "._")
        found = [os.path.join(path, name) for name in sorted(names)]
        missing = f"the folder {path!r}, without a file of this kind"
    else:
        found = sorted(one for one in glob.glob(path, recursive=True) if os.path.isfile(one))
        missing = (
            f"{path!r}, which matches no file" if _MAGIC & set(path) else f"{path!r}, which is not there"
        )
    if not found:
        raise ArgumentError(
            "`files` must name at least one file that exists.",
            received=missing,
            fix=f"Check the path. A folder must have files that end in {' or '.join(endings)}.",
        )
    return found


def sizes_of(files: Sequence[str]) -> tuple[int, ...]:
    """Return the sizes of files in bytes."""
    return tuple(File(path).size for path in files)


def open_all(files: Sequence[str], sizes: Sequence[int]) -> list[File]:
    """Open files. Their sizes are empty, or those that were described before."""
    known: Sequence[int | None] = sizes or [None] * len(files)
    return [File(path, size) for path, size in zip(files, known, strict=True)]


class File:
    """A file that must not change while it is read, nor have another size than when it was described."""

    def __init__(self, path: str, size: int | None = None) -> None:
        self.path = path
        self._state = self._look()
        self.size = self._state[0]
        if size not in (None, self.size):
            raise changed(f"{path}, which has {self.size} bytes, and had {size}")

    def check(self) -> None:
        """Raise the error if the file has changed."""
        if self._look() != self._state:
            raise changed(f"{self.path}, which was written again")

    def _look(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise changed(f"{self.path}, which was removed ({error.strerror})") from error
        return found.st_size, found.st_mtime_ns, found.st_ino


def changed(received: str) -> ArgumentError:
    """Return the error for a file that is not as it was."""
    return ArgumentError(
        "The files of a data set have changed since it was described.",
        received=received,
        fix="Write other files beside them, and restart.",
    )


# The place of an op in TensorFlow's program, which does not help with the file.
_OF_TENSORFLOW = re.compile(r"\{\{function_node [^}]*\}\} | \[Op:\w+\]|Name: <unknown>, ")


def first_line(error: Exception) -> str:
    """Return the first line of an error, or its class if it has no text."""
    text = _OF_TENSORFLOW.sub("", str(error)).strip()
    return text.splitlines()[0] if text else type(error).__name__


def damaged(kind: str, received: str) -> ArgumentError:
    """Return the error for a file that is not a whole file of its kind, such as "Parquet files"."""
    return ArgumentError(
        f"`files` must be whole {kind}.", received=received, fix="Write the file again, or leave it out."
    )

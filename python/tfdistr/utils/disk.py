"""The errors of a disk that refuses writes: it is full, over its quota, or read-only."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tfdistr.errors import CheckpointError, TfdistrError

#: The numbers of these errors.
REFUSES = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS))

#: The fix of an error about a file without which a job cannot start.
BEFORE_START = "Make room, or name a `run_dir` on another disk."
#: The fix of an error about a file of a run, which may have checkpoints.
RESUME = "Make room, or make the folder writable. If the run has checkpoints, then pass resume=True."

_ROOM = 2**20  # bytes; the reserves of exited workers are free again


@contextlib.contextmanager
def writing(
    path: str | os.PathLike[str],
    what: str = "A file of a run",
    *,
    needed: Callable[[], int] | None = None,
    only_refusals: bool = False,
    fix: str = RESUME,
    kind: type[TfdistrError] = CheckpointError,
) -> Iterator[None]:
    """Write a file within the context; if the system refuses, name the file, its size and the free space."""
    try:
        yield
    except OSError as error:
        if only_refusals and error.errno not in REFUSES:
            raise
        size = f", which needs {needed():,} bytes" if needed else ""
        raise kind(
            f"{what} could not be written: {error.strerror or error}.",
            received=f"{path}{size}{_and_free(path)}",
            fix=fix,
        ) from error


def refuse_file(path: str, reason: str) -> None:
    """Raise the error of a file for the workers that R could not write, and remove the partial file."""
    received = f"{path}{_and_free(path)}"
    Path(path).unlink(missing_ok=True)
    raise CheckpointError(
        f"A file for the workers could not be written: {reason}.", received=received, fix=BEFORE_START
    )


def _and_free(path: str | os.PathLike[str]) -> str:
    free = free_bytes(path)
    return "" if free is None else f", and {free:,} bytes are free"


def free_bytes(path: str | os.PathLike[str]) -> int | None:
    """Return the free bytes of the disk on which a file is or should be; None if not known."""
    for place in (Path(path), *Path(path).parents):
        with contextlib.suppress(OSError):
            return shutil.disk_usage(place).free
    return None


def is_full(path: str | os.PathLike[str]) -> bool:
    """Return whether the disk of a file has no room even for a message."""
    free = free_bytes(path)
    return free is not None and free < _ROOM

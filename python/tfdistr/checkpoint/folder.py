"""The file of a checkpoint, and the folder that keeps the last two.

A file is there whole or not at all: it is written under another name, flushed to the disk and renamed. It has
three parts: a line with the version of the format, a line of JSON that says what follows, and the bytes of
the arrays; at its end is the SHA-256 of all before. Nothing in it is run when it is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfdistr._utils.trusted_files import create_private
from tfdistr.errors import CheckpointError

log = logging.getLogger("tfdistr")

Array = np.ndarray[Any, Any]

#: How many checkpoints are kept.
KEPT = 2
#: The file, in the folder of the checkpoints, that tells the chief to save and end.
STOP = "stop"
#: The file of a run that says which job it is.
DESCRIPTION = "run.json"
_FOLDER = "checkpoints"
_FORMAT = 2
_MAGIC = b"tfdistr checkpoint "
_LONGEST = 64  # bytes of the first line
_ENDING = ".checkpoint"
_PARTIAL = ".partial"
_CHECKSUM = hashlib.sha256().digest_size


class Position(NamedTuple):
    """Where a training is: the epoch (from 0), and how many of its steps are done."""

    epoch: int
    step: int

    def __str__(self) -> str:
        return f"epoch {self.epoch + 1}, step {self.step}"


@dataclass(frozen=True)
class Checkpoint:
    """What a training has at one position.

    Attributes:
        job: What tells its run from others.
        position: Where the training is.
        total: Number of steps that were made in all epochs together.
        notes: Anything that JSON has a form for.
        arrays: Arrays by name.
    """

    job: str
    position: Position
    total: int
    notes: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)


class CheckpointFolder:
    """The checkpoints of one run. Only its chief writes.

    Args:
        path: The folder, which is made when it is needed.
        job: What tells the run from others.
    """

    def __init__(self, path: Path, job: str = "") -> None:
        self.path = path
        self.job = job

    def positions(self) -> list[Position]:
        """The positions of the checkpoints that are there, as their names say, in order."""
        return sorted(position for path in self._files() if (position := _position(path)) is not None)

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint; when it is safe on the disk, remove those that are too old.

        Those that are further were refused, as the training goes on from an earlier one.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        epoch, step = checkpoint.position
        target = self.path / f"{epoch:06d}-{step:09d}{_ENDING}"
        partial = target.with_suffix(_PARTIAL)
        partial.unlink(missing_ok=True)  # of a process that was killed
        with create_private(partial, "xb") as file:
            checksum = hashlib.sha256()
            for part in _parts(checkpoint):
                checksum.update(part)
                file.write(part)
            file.write(checksum.digest())
            file.flush()
            os.fsync(file.fileno())
        partial.rename(target)
        _flush(self.path)
        positions = self.positions()
        end = positions.index(checkpoint.position) + 1
        for position in positions[: max(0, end - KEPT)] + positions[end:]:
            self._path(position).unlink(missing_ok=True)
        for left in self.path.glob(f"*{_PARTIAL}"):
            left.unlink(missing_ok=True)
        return target

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole and of this run; what is wrong with newer ones is logged."""
        return self._newest(logging.WARNING)

    def reached(self) -> Position | None:
        """The position of the newest checkpoint that is whole and of this run."""
        newest = self._newest(logging.DEBUG)
        return newest.position if newest else None

    def _newest(self, level: int) -> Checkpoint | None:
        for position in reversed(self.positions()):
            path = self._path(position)
            try:
                return read(path, self.job)
            except CheckpointError as error:
                log.log(level, "%s It is left out.", str(error).replace("\n", " "))
        return None

    def _path(self, position: Position) -> Path:
        return self.path / f"{position.epoch:06d}-{position.step:09d}{_ENDING}"

    def _files(self) -> list[Path]:
        return list(self.path.glob(f"*{_ENDING}"))


def read(path: Path, job: str = "") -> Checkpoint:
    """Read a checkpoint.

    Args:
        path: The file.
        job: What tells the run from others; any will do if it is empty.

    Raises:
        CheckpointError: It cannot be used; the error says why.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror}") from error
    line = content[:_LONGEST].partition(b"\n")[0]
    if not line.startswith(_MAGIC):
        raise _refused(path, "it does not begin as a checkpoint of tfdistr does")
    if line != _MAGIC + str(_FORMAT).encode():
        version = line.removeprefix(_MAGIC)[:20].decode("ascii", "replace")
        raise _refused(path, f"its format has the version {version}, not {_FORMAT}")
    view = memoryview(content)  # it may be large
    if hashlib.sha256(view[:-_CHECKSUM]).digest() != view[-_CHECKSUM:]:
        raise _refused(path, "it is torn: its checksum is not that of its content")
    begin = len(line) + 1
    end = content.index(b"\n", begin)
    header, data = json.loads(content[begin:end]), view[end + 1 : -_CHECKSUM]
    if job and header["job"] != job:
        raise _refused(path, "it is of another run")
    arrays, start = {}, 0
    for name, kind, shape in header["arrays"]:
        dtype = dtype_of(kind)
        count = math.prod(shape)
        arrays[name] = np.frombuffer(data, dtype, count, start).reshape(shape)
        start += count * dtype.itemsize
    return Checkpoint(header["job"], Position(*header["position"]), header["total"], header["notes"], arrays)


def dtype_of(name: str) -> np.dtype[Any]:
    """The type of arrays that has this name; NumPy itself does not know those of 8 and 16 bits."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        kind: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return kind


def _parts(checkpoint: Checkpoint) -> Iterator[Any]:
    kinds = [[name, array.dtype.name, np.shape(array)] for name, array in checkpoint.arrays.items()]
    header = {
        "job": checkpoint.job,
        "position": checkpoint.position,
        "total": checkpoint.total,
        "notes": checkpoint.notes,
        "arrays": kinds,
    }
    yield _MAGIC + str(_FORMAT).encode() + b"\n"
    yield json.dumps(header).encode() + b"\n"
    for array in checkpoint.arrays.values():
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _refused(path: Path, reason: str) -> CheckpointError:
    return CheckpointError("A checkpoint must be whole, and of this run.", received=f"{path}: {reason}.")


def _position(path: Path) -> Position | None:
    with contextlib.suppress(ValueError):
        epoch, step = path.stem.split("-")
        return Position(int(epoch), int(step))
    return None


def _flush(folder: Path) -> None:
    """Have the disk know of a new name in ``folder``."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checkpoint_folder(run_dir: str | os.PathLike[str]) -> Path:
    """Where the checkpoints of a run are."""
    return Path(run_dir) / _FOLDER


def checkpoints(run_dir: str | os.PathLike[str]) -> CheckpointFolder:
    """The checkpoints of the run in ``run_dir``, which `take_up` has begun."""
    described = json.loads((Path(run_dir) / DESCRIPTION).read_text())
    return CheckpointFolder(checkpoint_folder(run_dir), described["id"])

"""The file of a checkpoint, and the folder that keeps the last ones.

A file is complete or it does not exist: it is written under another name, flushed to the disk and renamed. It
has four parts: a line with the version of the format, a line of JSON that describes the rest, the bytes of
the arrays, and the SHA-256 of everything before it. Reading a file runs no code from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfdistr.checkpoint.lock import check_lock, lock_id
from tfdistr.errors import CheckpointError
from tfdistr.schemas import validate
from tfdistr.utils.disk import writing
from tfdistr.utils.trusted_files import create_private

log = logging.getLogger("tfdistr")

Array = np.ndarray[Any, Any]

#: How many checkpoints are kept, if the user does not say how many.
KEPT = 2
#: The file in the checkpoint folder that tells the chief to save and stop.
STOP = "stop"
#: The file that identifies the job of a run.
DESCRIPTION = "run.json"
#: The file that describes the last job of a run.
JOB = "job.json"
#: The file of a run with its result.
RESULT = "result.json"
#: The ending of the file of a checkpoint.
ENDING = ".checkpoint"
_FOLDER = "checkpoints"
_FORMAT = 2
_MAGIC = b"tfdistr checkpoint "
_LONGEST = 64  # bytes of the first line
_PARTIAL = ".partial"
_REFUSED = ".refused"
_CHECKSUM = hashlib.sha256().digest_size
_FIX = (
    "Make room for two checkpoints, or make the folder writable. Then pass resume=True: the run continues "
    "from its last checkpoint."
)


class Position(NamedTuple):
    """A point in a training: the epoch (from 0), and the number of its steps that are done."""

    epoch: int
    step: int

    def __str__(self) -> str:
        return f"epoch {self.epoch + 1}, step {self.step}"

    @property
    def stem(self) -> str:
        """The name of its checkpoint, without an ending: the order of names is that of positions."""
        return f"{self.epoch:06d}-{self.step:09d}"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training at one position.

    Attributes:
        job: Id of the run.
        total: Number of steps over all epochs.
        notes: Any JSON value.
        checksum: The checksum of its file, if it was read from one.
    """

    job: str
    position: Position
    total: int
    notes: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    checksum: str | None = None


class CheckpointFolder:
    """The checkpoints of one run. Only its chief writes; ``keep`` is how many it keeps."""

    def __init__(self, path: Path, job: str = "", lock: str | None = None, keep: int = KEPT) -> None:
        self.path, self.keep = path, keep
        self.job = job
        self._lock = lock
        self._finite: dict[Position, bool] = {}  # whether the weights are finite
        self._own: dict[Position, bool] = {}  # whether this process could read them as checkpoints of its run

    def positions(self) -> list[Position]:
        """Return the positions of all checkpoints, from their names, in order."""
        files = self.path.glob(f"*{ENDING}")
        return sorted(position for path in files if (position := _position(path)) is not None)

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint; when it is safe on the disk, remove those of this run that are too old.

        The last one whose weights are finite stays, however old it is: later ones are of no use.
        Those after its position are also removed: the training resumed earlier. Files that are damaged or of
        another run are kept under another name.
        """
        target = self.path_of(checkpoint.position)
        partial = target.with_suffix(_PARTIAL)
        check_lock(self.path.parent, self._lock)
        with writing(target, "A checkpoint", needed=lambda: _size(checkpoint), fix=_FIX):
            try:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._remove_partial()  # killed processes leave such files, which take space
                with create_private(partial, "xb") as file:
                    checksum = hashlib.sha256()
                    for part in _parts(checkpoint):
                        checksum.update(part)
                        file.write(part)
                    file.write(checksum.digest())
                    file.flush()
                    os.fsync(file.fileno())
                check_lock(self.path.parent, self._lock)
                self._set_refused_aside()
                partial.rename(target)
                flush_folder(self.path)
            except OSError:
                with contextlib.suppress(OSError):
                    self._remove_partial()
                raise
        self._own[checkpoint.position] = True
        self._finite[checkpoint.position] = checkpoint.notes.get("finite", True)
        check_lock(self.path.parent, self._lock)
        positions = self.positions()
        end = positions.index(checkpoint.position) + 1
        first = max(0, end - self.keep)
        old, kept = positions[:first], positions[first:end]
        if old and not any(map(self._is_finite, reversed(kept))):
            last_finite = next(filter(self._is_finite, reversed(old)), None)
            old = [position for position in old if position != last_finite]
        for position in old + positions[end:]:
            self.path_of(position).unlink(missing_ok=True)
        return target

    def _is_finite(self, position: Position) -> bool:
        if position not in self._finite:
            found = self._read(position, logging.DEBUG)
            self._finite[position] = found is not None and found.notes.get("finite", True)
        return self._finite[position]

    def _set_refused_aside(self) -> None:
        for position in self.positions():
            if position not in self._own:
                self._read(position, logging.WARNING)
            if not self._own[position]:
                path = self.path_of(position)
                path.rename(path.with_name(f"{path.stem}-{os.urandom(4).hex()}{_REFUSED}"))

    def _remove_partial(self) -> None:
        for left in self.path.glob(f"*{_PARTIAL}"):
            left.unlink(missing_ok=True)

    def newest(self) -> Checkpoint | None:
        """Return the newest complete checkpoint of this run; log why newer ones were refused."""
        return next(self._complete(logging.WARNING), None)

    def before(self, step: int) -> Checkpoint | None:
        """Return the last complete checkpoint of this run before a step, which is counted over all epochs."""
        return next((found for found in self._complete(logging.WARNING) if found.total < step), None)

    def reached(self) -> Position | None:
        """Return the position of the newest complete checkpoint of this run."""
        newest = next(self._complete(logging.DEBUG), None)
        return newest.position if newest else None

    def _complete(self, level: int) -> Iterator[Checkpoint]:
        """Yield the complete checkpoints of this run, the newest first."""
        return filter(None, (self._read(position, level) for position in reversed(self.positions())))

    def _read(self, position: Position, level: int) -> Checkpoint | None:
        """Return a checkpoint; None if it is refused, with the reason in the log."""
        try:
            found = read(self.path_of(position), self.job)
        except CheckpointError as error:
            log.log(level, "%s It is left out.", str(error).replace("\n", " "))
            found = None
        self._own[position] = found is not None
        return found

    def path_of(self, position: Position) -> Path:
        """Return the path of the checkpoint at a position, whether there is one or not."""
        return self.path / f"{position.stem}{ENDING}"


def read(path: Path, job: str = "") -> Checkpoint:
    """Read a checkpoint of the run with the id ``job``; "" accepts the checkpoint of any run."""
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
    view = memoryview(content)  # a slice of the bytes would copy them
    if hashlib.sha256(view[:-_CHECKSUM]).digest() != view[-_CHECKSUM:]:
        raise _refused(path, "it is torn: its checksum is not that of its content")
    begin = len(line) + 1
    try:
        end = content.index(b"\n", begin)
        header = json.loads(content[begin:end])
        validate("checkpoint", header)
        names, kinds = [name for name, *_ in header["arrays"]], [kind for _, *kind in header["arrays"]]
        arrays = dict(zip(names, arrays_in(kinds, view[end + 1 : -_CHECKSUM]), strict=True))
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError) as error:
        reason = str(error).replace("\n", " ").rstrip(".")
        raise _refused(path, f"its checksum is right, but not its header: {reason}") from error
    if job and header["job"] != job:
        raise _refused(path, "it is of another run")
    position, checksum = Position(*header["position"]), view[-_CHECKSUM:].hex()
    if (named := _position(path)) not in (None, position):
        raise _refused(path, f"it is the checkpoint at {position}, not at {named}")
    return Checkpoint(header["job"], position, header["total"], header["notes"], arrays, checksum)


def checksum_of(path: Path) -> str:
    """Return the checksum of the checkpoint in a file, which is at its end."""
    with open(path, "rb") as file:
        file.seek(-_CHECKSUM, os.SEEK_END)
        return file.read().hex()


def arrays_in(kinds: Iterable[Sequence[Any]], data: memoryview | Array) -> Iterator[Array]:
    """Yield arrays whose bytes follow each other in ``data``, each with its type and its shape."""
    start = 0
    for kind, shape in kinds:
        dtype, count = dtype_of(kind), math.prod(shape)
        yield np.frombuffer(data, dtype, count, start).reshape(shape)
        start += count * dtype.itemsize


def bytes_of(array: Array) -> Array:
    """Return the bytes of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the array type of this name; NumPy itself does not know the ML types of 8 and 16 bits."""
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
        yield bytes_of(array).data


def _refused(path: Path, reason: str) -> CheckpointError:
    return CheckpointError("A checkpoint must be whole, and of this run.", received=f"{path}: {reason}.")


def _size(checkpoint: Checkpoint) -> int:
    return sum(map(len, _parts(checkpoint))) + _CHECKSUM


def _position(path: Path) -> Position | None:
    with contextlib.suppress(ValueError):
        epoch, step = path.stem.split("-")
        return Position(int(epoch), int(step))
    return None


def flush_folder(folder: Path) -> None:
    """Flush a new name in ``folder`` to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checkpoint_folder(run_dir: str | os.PathLike[str]) -> Path:
    """Return the folder of the checkpoints of a run."""
    return Path(run_dir) / _FOLDER


def checkpoints(run_dir: str | os.PathLike[str], keep: int = KEPT) -> CheckpointFolder:
    """Return the checkpoints of the run in ``run_dir``, which `begin_or_resume` has started."""
    described = json.loads((Path(run_dir) / DESCRIPTION).read_text())
    return CheckpointFolder(checkpoint_folder(run_dir), described["id"], lock_id(Path(run_dir)), keep)

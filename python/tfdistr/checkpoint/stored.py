"""The checkpoints of a run in a store of objects.

A checkpoint has two objects: its file, under a name that has a part of the file's digest, and a mark. The
mark has the digest, the size and the name of the file. It is written last, in one piece, and so makes the
checkpoint complete. A reader considers only checkpoints that have a mark, and takes a file only if it is what
the mark says. So a process that is killed at any moment leaves the checkpoint before, or the new one.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfdistr._utils.store import Store
from tfdistr.checkpoint.claim import Claim
from tfdistr.checkpoint.folder import KEPT, CheckpointFolder, Position, read
from tfdistr.errors import CheckpointError

log = logging.getLogger("tfdistr")

_FOLDER = "checkpoints/"
_MARK = ".mark"
_ENDING = ".checkpoint"
_CONTENT = re.compile(r"([0-9a-f]{64}) ([0-9]{1,18}) ([0-9]{6,}-[0-9]{9,}-[0-9a-f]{16}\.checkpoint)\n")
_NAME = re.compile(r"([0-9]{6,})-([0-9]{9,})\.mark")
_BLOCK = 1 << 20  # bytes


@dataclass(frozen=True)
class Mark:
    """What makes a checkpoint complete.

    Attributes:
        digest: SHA-256 of the file, in hexadecimal digits.
        size: Bytes of the file.
        name: Name of the file, in the folder of the checkpoints.
    """

    digest: str
    size: int
    name: str

    def __str__(self) -> str:
        return f"{self.digest} {self.size} {self.name}\n"


class StoredCheckpoints:
    """The checkpoints of one run in a store. Only the process that uploads them writes.

    Args:
        store: The run in the store.
        claim: The claim of this job to the run.
    """

    def __init__(self, store: Store, claim: Claim) -> None:
        self._store = store
        self._claim = claim

    def positions(self) -> list[Position]:
        """The positions of all complete checkpoints, in order.

        Raises:
            StoreError: The store refuses, or does not answer.
        """
        return sorted(_positions(self._store.names(_FOLDER)))

    def save(self, position: Position, file: Path) -> None:
        """Write a checkpoint.

        Args:
            position: The position of the checkpoint.
            file: Its file, which nobody changes.

        Raises:
            CheckpointError: Another job has taken the run over.
            StoreError: The store refuses, or does not answer.
        """
        mark = _mark_of(position, file)
        self._store.upload(_FOLDER + mark.name, file)
        self._claim.check()  # the upload may have taken long
        self._store.write(_name_of(position), str(mark).encode())

    def prune(self, position: Position) -> None:
        """Remove what is too old now that there is a checkpoint, and what cut-off uploads have left.

        Checkpoints after its position are removed, too: they were refused when the training resumed earlier.

        Args:
            position: The position of the checkpoint.

        Raises:
            StoreError: The store refuses, or does not answer.
        """
        names = self._store.names(_FOLDER)
        positions = sorted(_positions(names))
        end = positions.index(position) + 1 if position in positions else len(positions)
        kept = positions[max(0, end - KEPT) : end]
        for old in positions:
            if old not in kept:
                self._store.remove(_name_of(old))
        marks = [_parsed(self._store.read(_name_of(one))) for one in kept]
        used = {_FOLDER + mark.name for mark in marks if mark}
        for name in names:
            if name.endswith(_ENDING) and name not in used:
                self._store.remove(name)

    def fetch(self, folder: CheckpointFolder) -> Position | None:
        """Bring the newest checkpoint that is whole and of this run into a folder of this machine.

        It logs why newer ones were refused.

        Returns:
            The position of the checkpoint; None if there is none.

        Raises:
            StoreError: The store refuses, or does not answer.
        """
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = folder.path / "fetched.partial"
        for position in reversed(self.positions()):
            try:
                self._take(position, partial, folder.job)
            except CheckpointError as error:
                log.warning("%s It is left out.", str(error).replace("\n", " "))
            else:
                partial.rename(folder.path_of(position))
                return position
            finally:
                partial.unlink(missing_ok=True)
        return None

    def _take(self, position: Position, file: Path, job: str) -> None:
        mark = _parsed(self._store.read(_name_of(position)))
        if mark is None:
            raise self._refused(_name_of(position), "its mark is torn")
        name = _FOLDER + mark.name
        if not self._store.download(name, file):
            raise self._refused(name, "it is not there")
        if (size := file.stat().st_size) != mark.size:
            raise self._refused(name, f"it is torn: it has {size} bytes, where its mark says {mark.size}")
        if _digest(file) != mark.digest:
            raise self._refused(name, "it was altered: its SHA-256 is not the one of its mark")
        try:
            found = read(file, job)
        except CheckpointError as error:
            raise self._refused(name, str(error.received).removeprefix(f"{file}: ").rstrip(".")) from error
        if found.position != position:
            raise self._refused(name, f"it is the checkpoint at {found.position}, not at {position}")

    def _refused(self, name: str, reason: str) -> CheckpointError:
        place = f"{self._store.url}/{name}"
        return CheckpointError("A checkpoint must be whole, and of this run.", received=f"{place}: {reason}.")


def _positions(names: list[str]) -> Iterator[Position]:
    for name in names:
        if found := _NAME.fullmatch(name.removeprefix(_FOLDER)):
            yield Position(int(found[1]), int(found[2]))


def _stem(position: Position) -> str:
    return f"{position.epoch:06d}-{position.step:09d}"


def _name_of(position: Position) -> str:
    return f"{_FOLDER}{_stem(position)}{_MARK}"


def _mark_of(position: Position, file: Path) -> Mark:
    digest = _digest(file)
    return Mark(digest, file.stat().st_size, f"{_stem(position)}-{digest[:16]}{_ENDING}")


def _parsed(content: bytes | None) -> Mark | None:
    """The mark with this content; None if it is no whole mark."""
    found = _CONTENT.fullmatch((content or b"").decode("ascii", "replace"))
    return Mark(found[1], int(found[2]), found[3]) if found else None


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()

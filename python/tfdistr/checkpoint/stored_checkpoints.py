"""The checkpoints of a run in an object store.

A checkpoint has two objects: its file, under a name that has a part of the file's digest, and a mark. The
mark has the digest, the size and the name of the file. It is written last, in one piece, and so completes the
checkpoint. A reader considers only checkpoints that have a mark, and accepts a file only if it matches the
mark. So a process that is killed at any moment leaves the checkpoint before, or the new one.

Both objects are in the folder of the job's generation. A reader takes the newest checkpoint of the highest
generation. A job removes checkpoints of its own generation, and lower generations once it has two complete
checkpoints. So a paused job that has not noticed a takeover removes nothing that a reader would use.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tfdistr.checkpoint.folder import KEPT, CheckpointFolder, Position, read
from tfdistr.checkpoint.object_store import Store
from tfdistr.errors import CheckpointError

_CLAIM = "writer"
_FOLDER = "generations/"
_OLD_FOLDER = "checkpoints/"
_OBJECT_NAME = re.compile(rf"{_FOLDER}([0-9]{{6,}})-([0-9a-f]{{16}})/.+", re.DOTALL)


class RunGeneration(NamedTuple):
    """The part of a run that one job writes; the higher one is later.

    The number is 0 for runs of tfdistr 0.1, which had no generations.
    """

    number: int
    id: str

    @property
    def folder(self) -> str:
        """The prefix of the names of its objects."""
        return f"{_FOLDER}{self.number:06d}-{self.id}/" if self.number else _OLD_FOLDER

    @property
    def claim(self) -> str:
        """The name of the object that names the writing process."""
        return self.folder + _CLAIM


def generation_of(name: str) -> RunGeneration | None:
    """Return the generation of an object; None if it belongs to none, such as a log."""
    if found := _OBJECT_NAME.fullmatch(name):
        return RunGeneration(int(found[1]), found[2])
    return RunGeneration(0, "") if name.startswith(_OLD_FOLDER) else None


def is_claim(name: str) -> bool:
    """Return whether an object only names the writing process."""
    generation = generation_of(name)
    return name == _CLAIM or (generation is not None and name == generation.claim)


class Claim:
    """The claim of one job to write."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._id = uuid.uuid4().hex[:16]
        self._generation: RunGeneration | None = None

    @property
    def generation(self) -> RunGeneration:
        """The generation of this job, once it has the claim."""
        assert self._generation is not None
        return self._generation

    def make(self) -> None:
        """Take over the run from any other job; an error if another job takes it over now."""
        names = self._store.names()
        highest = max((found.number for found in map(generation_of, names) if found), default=0)
        self._generation = RunGeneration(highest + 1, self._id)
        own = f"{self._id} process {os.getpid()} on {socket.gethostname()}\n".encode()
        self._store.write(self.generation.claim, own)
        if _CLAIM in names:  # a job of tfdistr 0.1 looks only there
            self._store.write(_CLAIM, own)
        self.check()

    def check(self) -> None:
        """Check that no other job has taken over the run."""
        others = [found for found in map(generation_of, self._store.names(_FOLDER)) if found]
        highest = max(others, default=self.generation)
        if highest > self.generation:
            text = (self._store.read(highest.claim) or b"").decode(errors="replace")
            raise CheckpointError(
                "Lost the run to another job: only one job at a time may write to a run in a store.",
                received=f"{self._store.url}: {text.partition(' ')[2].strip() or 'another job'} "
                "has taken it over",
                fix="Stop one of the two jobs, or pass another `run_dir`.",
            )


log = logging.getLogger("tfdistr")

_MARK = ".mark"
_ENDING = ".checkpoint"
_CONTENT = re.compile(
    r"([0-9a-f]{64}) ([0-9]{1,18}) ((?:generations/[0-9]{6,}-[0-9a-f]{16}/)?"
    r"[0-9]{6,}-[0-9]{9,}-[0-9a-f]{16}\.checkpoint)\n"
)
_NAME = re.compile(r"([0-9]{6,})-([0-9]{9,})\.mark")
_BLOCK = 1 << 20  # bytes


@dataclass(frozen=True)
class Mark:
    """The mark that makes a checkpoint complete.

    Attributes:
        digest: SHA-256 of the file, in hexadecimal digits.
        size: Bytes of the file.
        name: Name of the file in the run; marks of tfdistr 0.1 have it without its folder.
    """

    digest: str
    size: int
    name: str

    def __str__(self) -> str:
        return f"{self.digest} {self.size} {self.name}\n"


class _Complete(NamedTuple):
    """A checkpoint that has a mark; a reader uses the higher one."""

    generation: RunGeneration
    position: Position

    @property
    def mark(self) -> str:
        """The name of its mark."""
        return f"{self.generation.folder}{_stem(self.position)}{_MARK}"


class StoredCheckpoints:
    """The checkpoints of one run in a store.

    Args:
        claim: The claim of this job to the run; a job that only reads need not make it.
    """

    def __init__(self, store: Store, claim: Claim) -> None:
        self._store = store
        self._claim = claim

    def positions(self) -> list[Position]:
        """Return the positions of all complete checkpoints; a reader uses the last one."""
        return [found.position for found in _complete(self._store.names())]

    def save(self, position: Position, file: Path) -> None:
        """Write a checkpoint."""
        saved = _Complete(self._claim.generation, position)
        mark = _mark_of(saved, file)
        self._store.upload(mark.name, file)
        self._claim.check()  # the upload may have taken long
        self._store.write(saved.mark, str(mark).encode())

    def prune(self, position: Position) -> None:
        """Remove checkpoints that are too old now, and the rest of incomplete uploads.

        Checkpoints of this job after its position are removed as well: they were refused when the workers
        were restarted from an earlier one.
        """
        names, own = self._store.names(), self._claim.generation
        saved = [found for found in _complete(names) if found.generation == own]
        kept = [found for found in saved if found.position <= position][-KEPT:]
        used = {own.claim, *(found.mark for found in kept)}
        used |= {mark.name for found in kept if (mark := _parsed(self._store.read(found.mark)))}
        for name in sorted(names, key=lambda name: not name.endswith(_MARK)):  # no mark without its file
            generation = generation_of(name)
            if generation is None or name in used:
                continue
            if generation == own or (generation < own and len(kept) == KEPT):
                self._store.remove(name)

    def fetch(self, folder: CheckpointFolder) -> Position | None:
        """Download the newest complete checkpoint of this run into a folder; return its position, or None.

        It logs why newer ones were refused.
        """
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = folder.path / "fetched.partial"
        refused: set[_Complete] = set()
        while left := [found for found in _complete(self._store.names()) if found not in refused]:
            newest = left[-1]
            try:
                self._take(newest, partial, folder.job)
            except CheckpointError as error:
                # A job that still writes may have removed it for newer ones.
                if newest in _complete(self._store.names()):
                    log.warning("%s It is left out.", str(error).replace("\n", " "))
                    refused.add(newest)
            else:
                partial.rename(folder.path_of(newest.position))
                return newest.position
            finally:
                partial.unlink(missing_ok=True)
        return None

    def _take(self, wanted: _Complete, file: Path, job: str) -> None:
        mark = _parsed(self._store.read(wanted.mark))
        if mark is None:
            raise self._refused(wanted.mark, "its mark is torn")
        name = mark.name if generation_of(mark.name) else wanted.generation.folder + mark.name
        if not name.startswith(wanted.generation.folder):
            raise self._refused(wanted.mark, "its mark is that of another generation")
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
        if found.position != wanted.position:
            reason = f"it is the checkpoint at {found.position}, not at {wanted.position}"
            raise self._refused(name, reason)

    def _refused(self, name: str, reason: str) -> CheckpointError:
        place = f"{self._store.url}/{name}"
        return CheckpointError("A checkpoint must be whole, and of this run.", received=f"{place}: {reason}.")


def _complete(names: Iterable[str]) -> list[_Complete]:
    """Return the complete checkpoints among the objects of a run; a reader prefers the last one."""
    found = []
    for name in names:
        generation = generation_of(name)
        if generation and (at := _NAME.fullmatch(name.removeprefix(generation.folder))):
            found.append(_Complete(generation, Position(int(at[1]), int(at[2]))))
    return sorted(found)


def _stem(position: Position) -> str:
    return f"{position.epoch:06d}-{position.step:09d}"


def _mark_of(saved: _Complete, file: Path) -> Mark:
    digest = _digest(file)
    name = f"{saved.generation.folder}{_stem(saved.position)}-{digest[:16]}{_ENDING}"
    return Mark(digest, file.stat().st_size, name)


def _parsed(content: bytes | None) -> Mark | None:
    """Return the mark with this content; None if it is no whole mark."""
    found = _CONTENT.fullmatch((content or b"").decode("ascii", "replace"))
    return Mark(found[1], int(found[2]), found[3]) if found else None


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()

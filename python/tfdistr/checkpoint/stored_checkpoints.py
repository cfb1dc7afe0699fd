"""The checkpoints of a run in an object store.

A checkpoint has two objects: its file, under a name that has a part of the file's digest, and a mark. The
mark has the digest, the size and the name of the file. It is written last, in one piece, and so completes the
checkpoint. A reader considers only checkpoints that have a mark, and accepts a file only if it matches the
mark. So a process that is killed at any moment leaves the checkpoint before, or the new one.

Both objects are in the folder of the job's generation. A reader takes the newest checkpoint of the highest
generation. A job removes checkpoints of its own generation, and lower generations once it has two complete
checkpoints. So a paused job that has not noticed a takeover removes nothing that a reader would use. A
generation of another run, or with a checkpoint that a job has refused, is never removed.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tfdistr.checkpoint.folder import DESCRIPTION, ENDING, KEPT, CheckpointFolder, Position, read
from tfdistr.checkpoint.generations import Claim, RunGeneration, generation_of
from tfdistr.checkpoint.object_store import Store
from tfdistr.errors import CheckpointError

log = logging.getLogger("tfdistr")

_MARK = ".mark"
#: The object of a generation with a checkpoint that a job has refused.
_REFUSED = "refused"
_CONTENT = re.compile(
    r"([0-9a-f]{64}) ([0-9]{1,18}) (generations/[0-9]{6,}-[0-9a-f]{16}/"
    r"[0-9]{6,}-[0-9]{9,}-[0-9a-f]{16}\.checkpoint)\n"
)
_NAME = re.compile(r"([0-9]{6,})-([0-9]{9,})\.mark")


@dataclass(frozen=True)
class Mark:
    """The mark that makes a checkpoint complete.

    Attributes:
        digest: SHA-256 of the file, in hexadecimal digits.
        size: Bytes of the file.
        name: Name of the file in the run.
    """

    digest: str
    size: int
    name: str

    def __str__(self) -> str:
        return f"{self.digest} {self.size} {self.name}\n"


class Complete(NamedTuple):
    """A checkpoint that has a mark; a reader uses the higher one."""

    generation: RunGeneration
    position: Position

    @property
    def mark(self) -> str:
        """The name of its mark."""
        return f"{self.generation.folder}{self.position.stem}{_MARK}"


class StoredCheckpoints:
    """The checkpoints of one run in a store."""

    def __init__(self, store: Store, claim: Claim) -> None:
        self._store = store
        self._claim = claim
        self._to_keep: set[RunGeneration] = set()

    def positions(self) -> list[Position]:
        """Return the positions of all complete checkpoints; a reader uses the last one."""
        return [found.position for found in complete(self._store.names())]

    def save(self, position: Position, file: Path) -> None:
        """Write a checkpoint."""
        saved = Complete(self._claim.generation, position)
        mark = _mark_of(saved, file)
        self._store.upload(mark.name, file)
        self._claim.check()  # the upload may have taken long
        for generation in self._to_keep:  # jobs that find this checkpoint do not read those before it
            self._store.write(generation.folder + _REFUSED, b"")
        self._to_keep.clear()
        self._store.write(saved.mark, str(mark).encode())

    def prune(self, position: Position, keep: int = KEPT, held: Collection[Position] = ()) -> None:
        """Remove checkpoints that are too old now, and the rest of incomplete uploads.

        The last ``keep`` stay, and those at the positions that the folder of this job holds.
        Checkpoints of this job after its position are removed as well: they were refused when the workers
        were restarted from an earlier one.
        """
        names, own = self._store.names(), self._claim.generation
        saved = [found for found in complete(names) if found.generation == own]
        until = [found for found in saved if found.position <= position]
        kept = [found for found in until if found.position in held or found in until[-keep:]]
        used = {found.mark for found in kept}
        used |= {mark.name for found in kept if (mark := _parsed(self._store.read(found.mark)))}
        of_saves = (name for name in names if name.endswith((_MARK, ENDING)))
        old = {name for name in of_saves if generation_of(name) == own} - used
        if len(kept) >= min(keep, KEPT):
            lower = {found for found in map(generation_of, names) if found and found < own}
            removable = {found for found in lower if self._may_remove(found, names)}
            old |= {name for name in names if generation_of(name) in removable}
        for name in sorted(old, key=_when_removed):
            self._store.remove(name)

    def _may_remove(self, generation: RunGeneration, names: Collection[str]) -> bool:
        """Return whether a lower generation is of this job's run, and no checkpoint in it was refused."""
        run, own = (found.folder + DESCRIPTION for found in (generation, self._claim.generation))
        if run not in names:  # its job has never begun
            return all(found.generation != generation for found in complete(names))
        return generation.folder + _REFUSED not in names and self._store.read(run) == self._store.read(own)

    def fetch(self, folder: CheckpointFolder) -> Position | None:
        """Download the newest complete checkpoint of this run into a folder; return its position, or None."""
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = folder.path / "fetched.partial"
        refused: set[Complete] = set()
        while left := [found for found in complete(self._store.names()) if found not in refused]:
            newest = left[-1]
            try:
                self._take(newest, partial, folder.job)
            except CheckpointError as error:
                # A job that still writes may have removed it for newer ones.
                if newest in complete(self._store.names()):
                    log.warning("%s It is left out.", str(error).replace("\n", " "))
                    refused.add(newest)
                    self._to_keep.add(newest.generation)
            else:
                partial.rename(folder.path_of(newest.position))
                return newest.position
            finally:
                partial.unlink(missing_ok=True)
        return None

    def fetch_all(self, folder: CheckpointFolder) -> list[str]:
        """Download all complete checkpoints into a folder; return why others were refused."""
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        refused = []
        for found in complete(self._store.names()):
            try:
                self._take(found, folder.path_of(found.position), folder.job)
            except CheckpointError as error:
                folder.path_of(found.position).unlink(missing_ok=True)
                log.warning("%s It is left out.", str(error).replace("\n", " "))
                refused.append(str(error.received).rstrip("."))
        return refused

    def _take(self, wanted: Complete, file: Path, job: str) -> None:
        mark = _parsed(self._store.read(wanted.mark))
        if mark is None:
            raise self._refused(wanted.mark, "its mark is torn")
        name = mark.name
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


def _when_removed(name: str) -> tuple[bool, bool, bool]:
    """Sort objects: no mark without its file, no checkpoint without its run, no run without its documents."""
    return not name.endswith(_MARK), not name.endswith(ENDING), not name.endswith(f"/{DESCRIPTION}")


def complete(names: Iterable[str]) -> list[Complete]:
    """Return the complete checkpoints among the objects of a run; a reader prefers the last one."""
    found = []
    for name in names:
        generation = generation_of(name)
        if generation and (at := _NAME.fullmatch(name.removeprefix(generation.folder))):
            found.append(Complete(generation, Position(int(at[1]), int(at[2]))))
    return sorted(found)


def _mark_of(saved: Complete, file: Path) -> Mark:
    digest = _digest(file)
    name = f"{saved.generation.folder}{saved.position.stem}-{digest[:16]}{ENDING}"
    return Mark(digest, file.stat().st_size, name)


def _parsed(content: bytes | None) -> Mark | None:
    """Return the mark with this content; None if it is no whole mark."""
    found = _CONTENT.fullmatch((content or b"").decode("ascii", "replace"))
    return Mark(found[1], int(found[2]), found[3]) if found else None


def _digest(file: Path) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()

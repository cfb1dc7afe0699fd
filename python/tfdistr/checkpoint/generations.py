"""The generations of a run in an object store: the parts that one job each writes.

No store can lock anything. So each job that begins makes a generation of its own: a folder with a higher
number than all others. What a reader uses, checkpoints and documents, is in these folders. A job that was
paused and has not noticed a takeover writes only into its own, which is a lower one.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Collection
from typing import NamedTuple

from tfdistr.checkpoint.object_store import Store
from tfdistr.errors import CheckpointError

#: The folder of all generations.
GENERATIONS = "generations/"
_CLAIM = "writer"
_OBJECT_NAME = re.compile(rf"{GENERATIONS}([0-9]{{6,}})-([0-9a-f]{{16}})/(.+)", re.DOTALL)


class RunGeneration(NamedTuple):
    """The part of a run that one job writes; the higher one is later."""

    number: int
    id: str

    @property
    def folder(self) -> str:
        """The prefix of the names of its objects."""
        return f"{GENERATIONS}{self.number:06d}-{self.id}/"

    @property
    def claim(self) -> str:
        """The name of the object that names the writing process."""
        return self.folder + _CLAIM


def generation_of(name: str) -> RunGeneration | None:
    """Return the generation of an object; None if it belongs to none, such as a log."""
    found = _OBJECT_NAME.fullmatch(name)
    return RunGeneration(int(found[1]), found[2]) if found else None


def is_only_begun(name: str, documents: Collection[str]) -> bool:
    """Return whether an object is a claim, or one of ``documents`` in a generation."""
    found = _OBJECT_NAME.fullmatch(name)
    return found is not None and found[3] in (_CLAIM, *documents)


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
        names = self._store.names(GENERATIONS)
        highest = max((found.number for found in map(generation_of, names) if found), default=0)
        self._generation = RunGeneration(highest + 1, self._id)
        own = f"{self._id} process {os.getpid()} on {socket.gethostname()}\n".encode()
        self._store.write(self.generation.claim, own)
        self.check()

    def check(self) -> None:
        """Check that no other job has taken over the run."""
        others = [found for found in map(generation_of, self._store.names(GENERATIONS)) if found]
        highest = max(others, default=self.generation)
        if highest > self.generation:
            text = (self._store.read(highest.claim) or b"").decode(errors="replace")
            raise CheckpointError(
                "Lost the run to another job: only one job at a time may write to a run in a store.",
                received=f"{self._store.url}: {text.partition(' ')[2].strip() or 'another job'} "
                "has taken it over",
                fix="Stop one of the two jobs, or pass another `run_dir`.",
            )

"""Generations: the folder of each job that writes to a run in a store, and which job may write.

A process that was thought dead may still write, for example when a scheduler has lost sight of its machine. A
store has no locks, and no write that depends on what is there. So each job writes into a folder of its own,
whose number is above all numbers that it finds. Of jobs that find the same numbers, the id decides. The job
with the highest generation is the one that writes; the others stop when they notice it. Whatever they still
write meanwhile, no reader takes it for newer.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from typing import NamedTuple

from tfdistr.checkpoint.object_store import Store
from tfdistr.errors import CheckpointError

_CLAIM = "writer"
_FOLDER = "generations/"
_OLD_FOLDER = "checkpoints/"
_NAME = re.compile(rf"{_FOLDER}([0-9]{{6,}})-([0-9a-f]{{16}})/.+", re.DOTALL)


class RunGeneration(NamedTuple):
    """The part of a run that one job writes; the higher one is the later one.

    The number is 0 for what tfdistr 0.1 has written, which had no generations.
    """

    number: int
    id: str

    @property
    def folder(self) -> str:
        """The beginning of the names of its objects."""
        return f"{_FOLDER}{self.number:06d}-{self.id}/" if self.number else _OLD_FOLDER

    @property
    def claim(self) -> str:
        """The name of the object that says which process writes."""
        return self.folder + _CLAIM


def generation_of(name: str) -> RunGeneration | None:
    """Return the generation of an object; None if it belongs to none, such as a log."""
    if found := _NAME.fullmatch(name):
        return RunGeneration(int(found[1]), found[2])
    return RunGeneration(0, "") if name.startswith(_OLD_FOLDER) else None


def is_claim(name: str) -> bool:
    """Return whether an object only says which process writes."""
    generation = generation_of(name)
    return name == _CLAIM or (generation is not None and name == generation.claim)


class Claim:
    """The claim of one job to be the one that writes.

    Args:
        store: The run in the store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._id = uuid.uuid4().hex[:16]
        self._made: RunGeneration | None = None

    @property
    def generation(self) -> RunGeneration:
        """The generation of this job, once it has the claim."""
        assert self._made is not None
        return self._made

    def make(self) -> None:
        """Take the run over from any other job.

        Raises:
            CheckpointError: Another job has taken the run over in the same moment.
            StoreError: The store refuses, or does not answer.
        """
        names = self._store.names()
        highest = max((found.number for found in map(generation_of, names) if found), default=0)
        self._made = RunGeneration(highest + 1, self._id)
        own = f"{self._id} process {os.getpid()} on {socket.gethostname()}\n".encode()
        self._store.write(self.generation.claim, own)
        if _CLAIM in names:  # a job of tfdistr 0.1 looks only there
            self._store.write(_CLAIM, own)
        self.check()

    def check(self) -> None:
        """Check that no other job has taken the run over.

        Raises:
            CheckpointError: Another job has.
            StoreError: The store refuses, or does not answer.
        """
        others = [found for found in map(generation_of, self._store.names(_FOLDER)) if found]
        highest = max(others, default=self.generation)
        if highest > self.generation:
            text = (self._store.read(highest.claim) or b"").decode(errors="replace")
            raise CheckpointError(
                "Only one job at a time may write to a run in a store.",
                received=f"{self._store.url}: {text.partition(' ')[2].strip() or 'another job'} "
                "has taken it over",
                fix="End one of the two jobs, or pass another `run_dir`.",
            )

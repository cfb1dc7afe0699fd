"""The documents of a run in an object store: `run.json`, which has its id, the result, and others.

Each job has them in its generation, so that a job that has lost the run cannot give it another id. `run.json`
is written last and removed first: a generation that has it has all documents with which its job began. A
reader takes those of the highest generation with a checkpoint or a result; as long as there is none, of the
highest that has begun.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tfdistr.checkpoint.folder import DESCRIPTION, RESULT
from tfdistr.checkpoint.generations import GENERATIONS, Claim, RunGeneration, generation_of
from tfdistr.checkpoint.object_store import Store
from tfdistr.checkpoint.stored_checkpoints import complete


class StoredDocuments:
    """The documents of one run in a store."""

    def __init__(self, store: Store, claim: Claim) -> None:
        self._store = store
        self._claim = claim

    def fetch(self, folder: Path, *names: str) -> bool:
        """Download the documents of the run into a folder; return whether there is a run."""
        while found := described(self._store.names(GENERATIONS)):
            for name in (*names, DESCRIPTION):
                if self._store.download(found.folder + name, folder / name):
                    (folder / name).chmod(0o600)  # whatever the umask is, others must not be able to write
            if (folder / DESCRIPTION).exists():  # otherwise a later job has just removed the generation
                return True
        return False

    def upload(self, folder: Path, *names: str) -> None:
        """Upload those documents of a folder that exist, in this order."""
        for name in names:
            if (folder / name).is_file():
                self._store.upload(self._claim.generation.folder + name, folder / name)

    def remove(self, name: str) -> None:
        """Remove a document of this job, if there is one."""
        self._store.remove(self._claim.generation.folder + name)


def described(names: Collection[str]) -> RunGeneration | None:
    """Return the generation whose documents are those of the run; None if there is no run."""
    having = {ending: set[RunGeneration]() for ending in (DESCRIPTION, RESULT)}
    for name in names:
        generation = generation_of(name)
        if generation and (ending := name.removeprefix(generation.folder)) in having:
            having[ending].add(generation)
    far = having[RESULT] | {found.generation for found in complete(names)}
    return max(having[DESCRIPTION] & far or having[DESCRIPTION], default=None)

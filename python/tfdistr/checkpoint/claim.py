"""Which job writes to a run in a store: the one that has begun last.

A process that was thought dead may still write, for example when a scheduler has lost sight of its machine.
A store has no locks. So each job writes its own name into an object of the run when it begins, and looks
whether its name is still there before it completes a checkpoint.
"""

from __future__ import annotations

import os
import socket
import uuid

from tfdistr._utils.store import Store
from tfdistr.errors import CheckpointError

#: The object with the name of the job that writes.
CLAIM = "writer"


class Claim:
    """The claim of one job to be the only one that writes.

    Args:
        store: The run in the store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._own = f"{uuid.uuid4().hex} process {os.getpid()} on {socket.gethostname()}\n"

    def make(self) -> None:
        """Take the run over from any other job.

        Raises:
            StoreError: The store refuses, or does not answer.
        """
        self._store.write(CLAIM, self._own.encode())

    def check(self) -> None:
        """Check that no other job has taken the run over.

        Raises:
            CheckpointError: Another job has.
            StoreError: The store refuses, or does not answer.
        """
        found = (self._store.read(CLAIM) or b"").decode(errors="replace")
        if found not in ("", self._own):
            raise CheckpointError(
                "Only one job at a time may write to a run in a store.",
                received=f"{self._store.url}: {found.partition(' ')[2].strip()} has taken it over",
                fix="End one of the two jobs, or pass another `run_dir`.",
            )

"""Takes a run in a store over, and writes checkpoints until another process takes it over: then status 3.

Usage: takeover.py FOLDER URL NAME
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tfdistr.checkpoint.folder import Checkpoint, CheckpointFolder, Position
from tfdistr.checkpoint.object_store import Store, StoreError
from tfdistr.checkpoint.stored_checkpoints import Claim, StoredCheckpoints
from tfdistr.errors import CheckpointError


def persistently(ask: Callable[..., Any], *arguments: Any) -> Any:
    """Ask a store that is busy, as uploads do; the last failure is an error."""
    for _ in range(4):
        try:
            return ask(*arguments)
        except StoreError as error:
            print(f"busy: {error}", file=sys.stderr)
    return ask(*arguments)


store = Store(sys.argv[2])
claim = Claim(store)
folder, stored = CheckpointFolder(Path(sys.argv[1]), "run"), StoredCheckpoints(store, claim)
found = persistently(stored.fetch, folder)
epoch = found.epoch if found else 0
try:
    persistently(claim.make)
    while True:
        epoch += 1
        position = Position(epoch, 0)
        arrays = {"a": np.full(1000, epoch, "float32")}
        notes = {"workers": 1, "by": sys.argv[3]}
        file = folder.save(Checkpoint("run", position, epoch, notes, arrays))
        persistently(stored.save, position, file)
        print(f"saved {epoch}", flush=True)
        persistently(stored.prune, position)
except CheckpointError:
    sys.exit(3)

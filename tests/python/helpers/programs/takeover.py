"""Takes a run in a store over, and writes checkpoints until another process takes it over: then status 3.

Usage: takeover.py FOLDER URL NAME
"""

import sys
from pathlib import Path

import numpy as np

from tfdistr._utils.store import Store
from tfdistr.checkpoint.claim import Claim
from tfdistr.checkpoint.folder import Checkpoint, CheckpointFolder, Position
from tfdistr.checkpoint.stored import StoredCheckpoints
from tfdistr.errors import CheckpointError

store = Store(sys.argv[2])
claim = Claim(store)
folder, stored = CheckpointFolder(Path(sys.argv[1]), "run"), StoredCheckpoints(store, claim)
found = stored.fetch(folder)
epoch = found.epoch if found else 0
try:
    claim.make()
    while True:
        epoch += 1
        position = Position(epoch, 0)
        arrays = {"a": np.full(1000, epoch, "float32")}
        file = folder.save(Checkpoint("run", position, epoch, {"by": sys.argv[3]}, arrays))
        stored.save(position, file)
        print(f"saved {epoch}", flush=True)
        stored.prune(position)
except CheckpointError:
    sys.exit(3)

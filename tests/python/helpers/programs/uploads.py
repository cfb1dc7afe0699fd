"""Writes checkpoints as fast as it can, and uploads them; continues with what is in the store.

Usage: uploads.py FOLDER URL
"""

import sys
import time
from pathlib import Path

import numpy as np

from tfdistr.checkpoint.folder import Checkpoint, CheckpointFolder, Position
from tfdistr.checkpoint.object_store import Store
from tfdistr.checkpoint.stored_checkpoints import Claim, StoredCheckpoints
from tfdistr.checkpoint.uploads import Uploads

store = Store(sys.argv[2])
claim = Claim(store)
folder, stored = CheckpointFolder(Path(sys.argv[1], "checkpoints"), "this"), StoredCheckpoints(store, claim)
found = stored.fetch(folder)
claim.make()
epoch = found.epoch if found else 0
print(f"begins at {epoch}", flush=True)
uploads = Uploads(folder, stored, found)
while True:
    epoch += 1
    arrays = {"a": np.full(50_000, epoch, "float32")}
    folder.save(Checkpoint("this", Position(epoch, 0), epoch, {"workers": 1}, arrays))
    uploads.wake()
    time.sleep(0.02)

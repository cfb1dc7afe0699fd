"""Trains with checkpoints as one of several workers that were started by hand.

Usage: recovery_by_hand.py WHAT FOLDER   (each worker has a folder of its own in it; a URL is of them all)

WHAT: "train", "told" (the last worker tells itself to end in epoch 2), "resume", or "noise" (the last worker
has other weights).
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
from resumed import model

import tfdistr
from tfdistr.errors import JobMismatchError

what, folder = sys.argv[1:]
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
run_dir = folder if "://" in folder else Path(folder, str(index))


class Tells(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if what == "told" and index == 1 and epoch == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_train_begin(self, logs=None):
        if what == "noise" and index == 1:
            # Not through the strategy, which would give all workers the same.
            weights = self.model.layers[0].kernel.value
            weights.values[0].assign_add(np.ones(weights.shape, "float32"))


rng = np.random.default_rng(0)
x = rng.normal(size=(170, 4)).astype("float32")
y = (x[:, 0] * x[:, 1] > 0).astype("int64")
try:
    fit = tfdistr.distributed_fit(
        model, x, y, batch_size=8, epochs=4, seed=1, callbacks=[Tells()], checkpoint_every=5,
        run_dir=run_dir, resume=what == "resume", verbose=0,
    )  # fmt: skip
except JobMismatchError as error:
    print(f"refused: {json.dumps(str(error))}", flush=True)
else:
    own = [np.asarray(variable.value.values[0]) if hasattr(variable.value, "values") else np.asarray(variable)
           for variable in [*fit.model.variables, *fit.model.optimizer.variables]]  # fmt: skip
    digest = hashlib.sha256(json.dumps(fit.history).encode() + b"".join(value.tobytes() for value in own))
    print(f"trained: {digest.hexdigest()}\ntrained at {time.time()}", flush=True)

"""Trains in this process, with checkpoints in a store; continues with what is there.

Usage: stored_job.py URL
"""

import hashlib
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parents[1]))

import keras
from resumed import bits, train


class Slow(keras.callbacks.Callback):
    """Lets the training take some seconds."""

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.01)


fit = train(sys.argv[1], epochs=40, checkpoint_every=3, callbacks=[Slow()], resume=True)
print("trained:", hashlib.sha256(b"".join(bits(fit))).hexdigest(), flush=True)

"""Trains on two workers that it starts, with checkpoints; continues with what is in the folder.

Usage: recovery_job.py FOLDER COMMUNICATION [unsaved | slow]

With "unsaved", the model is one that has no checkpoints, and is trained for very long. With "slow", the first
step of the second epoch takes 6 s, in which there are files "slow-PID" in the folder.
"""

import os
import sys
import time
from pathlib import Path

import keras
import numpy as np

import tfdistr


def model():
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    made.compile("adam", "mse")
    return made


def model_with_fit():
    class OwnFit(keras.Sequential):
        def fit(self, *args, **kwargs):
            return super().fit(*args, **kwargs)

    made = OwnFit([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


class Slow(keras.callbacks.Callback):
    """Has a step take longer."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.epoch == 1 and batch == 0:
            Path(self.folder, f"slow-{os.getpid()}").touch()
            time.sleep(6)


def train(make=model, **given):
    x = np.random.default_rng(0).normal(size=(2400, 4)).astype("float32")
    settings = {"batch_size": 8, "epochs": 6, "seed": 1, "checkpoint_every": 50, "verbose": 0}
    return tfdistr.distributed_fit(make, x, x[:, :1] * x[:, 1:2], **settings | given)


if __name__ == "__main__":
    from borrowed import borrow_server

    borrow_server()
    what, more = sys.argv[3:4], {"resume": True}
    if what == ["unsaved"]:
        more = {"make": model_with_fit, "epochs": 10**6, "checkpoint_every": None}
        more["failures"] = tfdistr.on_failure(max_restarts=1)
    if what == ["slow"]:
        folder = sys.argv[1]
        more["callbacks"] = lambda: [Slow(folder)]
    folder, cluster = Path(sys.argv[1]), tfdistr.local_cluster(2)
    strategy = tfdistr.multi_worker_mirrored(communication=sys.argv[2])
    fit = train(run_dir=folder, cluster=cluster, strategy=strategy, **more)
    assert fit.params["workers"] == len(fit.workers) == 2
    np.savez(Path(sys.argv[1], "found.npz"), *fit.model.get_weights(), loss=fit.history["loss"])

"""Trains on two workers that it starts, with checkpoints; goes on with what is in the folder.

Usage: recovery_job.py FOLDER COMMUNICATION [lost]

With "lost", it starts three, of which the last is killed whenever it comes to the second epoch.
"""

import json
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np

import tfdistr


def model():
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    made.compile("adam", "mse")
    return made


class Breaks(keras.callbacks.Callback):
    """Kills the third of three workers."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        index = os.environ.get("PMI_RANK") or config["task"]["index"]
        if self.epoch == 1 and batch == 60 and int(index) == 2:
            os.kill(os.getpid(), signal.SIGKILL)


def train(**given):
    x = np.random.default_rng(0).normal(size=(6400, 4)).astype("float32")
    settings = {"batch_size": 8, "epochs": 10, "seed": 1, "checkpoint_every": 50, "verbose": 0}
    return tfdistr.distributed_fit(model, x, x[:, :1] * x[:, 1:2], **settings | given)


if __name__ == "__main__":
    lost = sys.argv[3:] == ["lost"]
    more = {"min_workers": 2, "max_restarts": 0, "callbacks": lambda: [Breaks()], "epochs": 3} if lost else {}
    fit = train(
        run_dir=Path(sys.argv[1]), resume=True, cluster=tfdistr.local_cluster(3 if lost else 2),
        communication=sys.argv[2], **more,
    )  # fmt: skip
    assert fit.params["workers"] == len(fit.workers) == 2
    np.savez(Path(sys.argv[1], "found.npz"), *fit.model.get_weights(), loss=fit.history["loss"])

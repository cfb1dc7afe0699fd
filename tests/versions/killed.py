"""A worker is killed, and a second call resumes the job: the result has the bits of an undisturbed run.

Usage: killed.py mpi|ring
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfdistr
from tfdistr.errors import WorkerFailedError

X = np.random.default_rng(1).normal(size=(256, 8)).astype("float32")
Y = (X.sum(axis=1) > 0).astype("int32")


def model() -> keras.Model:
    made = keras.Sequential(
        [keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.3), keras.layers.Dense(2, "softmax")]
    )
    made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made


class Kill(keras.callbacks.Callback):
    """Kills worker 1 in the second epoch, once."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = marker
        self.epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        here = tfdistr.worker_index() == 1 and (self.epoch, batch) >= (1, 4)
        if here and not os.path.exists(self.marker):
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)


def train(run_dir: Path, communication: str, **options: Any) -> tfdistr.FitResult:
    return tfdistr.distributed_fit(
        model, X, Y, epochs=3, batch_size=32, seed=1, verbose=0, cluster=tfdistr.local_cluster(workers=2),
        strategy=tfdistr.multi_worker_mirrored(communication=communication), run_dir=run_dir,
        checkpoint_every=3, **options,
    )  # fmt: skip


def main() -> None:
    communication = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="tfdistr-versions-") as folder:
        whole = train(Path(folder) / "whole", communication)
        kill = Kill(f"{folder}/killed")
        run_dir = Path(folder) / "killed-run"
        with pytest.raises(WorkerFailedError, match="was killed by SIGKILL"):
            train(run_dir, communication, callbacks=[kill])
        resumed = train(run_dir, communication, callbacks=[kill], resume=True)
        assert resumed.params["communication"] == communication, resumed.params
        for one, other in zip(whole.model.get_weights(), resumed.model.get_weights(), strict=True):
            assert one.tobytes() == other.tobytes(), "the weights differ"
        assert whole.history == resumed.history, (whole.history, resumed.history)
        tfdistr.stop_warm_workers()
    print("the same bits")


if __name__ == "__main__":
    main()

"""A run whose workers sample their resident memory after each epoch; see memory.py.

Usage: memory_fit.py FOLDER COMMUNICATION EPOCHS STEPS
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import networks

import tfdistr


def memory_callbacks(folder: str) -> list[Any]:
    """Callbacks of a worker that save its resident memory."""
    import keras

    class SampleMemory(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            self.sampled: list[float] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.sampled.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)

        def on_train_end(self, logs: Any = None) -> None:
            Path(folder, f"{os.getpid()}.json").write_text(json.dumps(self.sampled))

    return [SampleMemory()]


if __name__ == "__main__":
    folder, communication, epochs, steps = sys.argv[1:]
    x, y = networks.data("seed")
    tfdistr.distributed_fit(
        lambda: networks.model("seed"), x, y, cluster=tfdistr.local_cluster(2, cores_per_worker=1),
        strategy=tfdistr.multi_worker_mirrored(communication=communication),
        batch_size=tfdistr.per_worker(networks.PER_WORKER_BATCH), epochs=int(epochs),
        steps_per_epoch=int(steps), seed=1, verbose=0, callbacks=lambda: memory_callbacks(folder),
        run_dir=Path(folder, "run"),
    )  # fmt: skip

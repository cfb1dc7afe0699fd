"""Fits through tfdistr, one after another in one session: fit.py JSON, the arguments of each fit()."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measure
import networks

import tfdistr


def fit(
    folder: str, network: str = "seed", workers: int | None = None, cores: int | None = None,
    warm: bool = True, communication: str = "auto", shares: int = 1, virtual: int | None = None,
    steps: int | None = None, epochs: int | None = None, examples: int | None = None,
    every: str | None = None, alongside: int = 1, data: str = "arrays", callback: str | None = None,
) -> None:  # fmt: skip
    """Train a network; the workers save what they measure to ``folder``.

    Args:
        folder: The folder, also of the run.
        network: The name of the network.
        workers: Workers to start; by default join what TF_CONFIG or MPI's launcher describe.
        cores: Cores of each worker; by default its share.
        warm: Whether the workers are forks of a server.
        communication: As of `multi_worker_mirrored`.
        shares: Batches that make a worker's batch.
        virtual: Virtual workers.
        steps: Steps of each epoch, to train less.
        epochs: Epochs; by default the network's, or 2 with ``steps``.
        examples: The first so many examples, or the examples repeated to so many.
        every: As ``checkpoint_every``.
        alongside: Number of such runs at the same time.
        data: "arrays" or "Python generator".
        callback: "epoch" or "batch", after which a callback reads the loss; or "first", for that of
            `measure.first_step`.
    """
    x, y = networks.data(network, examples)
    cluster = tfdistr.local_cluster(workers, cores_per_worker=cores, warm=warm) if workers else None
    batch = shares * networks.PER_WORKER_BATCH
    given = (x, y) if data == "arrays" else (lambda: batches(x, y, batch),)
    Path(folder, "called").write_text(str(time.time()))
    tfdistr.distributed_fit(
        lambda: networks.model(network), *given, cluster=cluster,
        strategy=tfdistr.multi_worker_mirrored(communication=communication),
        batch_size=tfdistr.per_worker(batch) if data == "arrays" else None,
        epochs=epochs or (2 if steps else networks.NETWORKS[network].epochs), steps_per_epoch=steps, seed=1,
        virtual_workers=virtual, checkpoint_every=every, verbose=0,
        callbacks=lambda: [measure.callback(folder, alongside), *others(folder, callback)],
        run_dir=Path(folder, "run") if workers and alongside == 1 else None,
    )  # fmt: skip
    Path(folder, "returned").write_text(str(time.time()))


def batches(x: Any, y: Any, batch: int) -> Iterator[tuple[Any, Any]]:
    """The batches of all epochs."""
    while True:
        for first in range(0, len(x), batch):
            yield x[first : first + batch], y[first : first + batch]


def others(folder: str, name: str | None) -> list[Any]:
    """The other callback of a fit, if it has one."""
    import keras

    def read(_: int, logs: Any) -> float:
        return float(logs["loss"])

    if name == "first":
        return [measure.first_step(folder)]
    hooks = {"epoch": "on_epoch_end", "batch": "on_train_batch_end"}
    return [keras.callbacks.LambdaCallback(**{hooks[name]: read})] if name else []


if __name__ == "__main__":
    for call in json.loads(sys.argv[1]):
        fit(**call)

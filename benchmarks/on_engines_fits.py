"""Trains networks one after another: as a worker of an engine, or on hosts by ssh; see on_engines.py."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import measure
import networks

import tfdistr

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("communication")
parser.add_argument("epochs", type=int)
parser.add_argument("networks", nargs="+")
parser.add_argument("--hosts", nargs="*", default=[], help="start workers there by ssh")
parser.add_argument("--per-host", type=int, default=1, help="workers on each host")
parser.add_argument("--ssh")
given = parser.parse_args()


def first_step(folder: Path) -> Any:
    """A callback that writes when the first step of this worker ended."""
    import keras

    class FirstStep(keras.callbacks.Callback):  # type: ignore[misc]
        decides = False  # else all workers would exchange their metrics after each step
        made = False

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if not self.made:
                self.made = True
                (folder / f"{os.getpid()}.first").write_text(str(time.time()))

    return FirstStep()


def fit(name: str, folder: Path, cluster: Any) -> None:
    """Train a network."""
    x, y = networks.data(name)
    tfdistr.distributed_fit(
        lambda: networks.model(name), x, y, cluster=cluster,
        strategy=tfdistr.multi_worker_mirrored(communication=given.communication),
        batch_size=tfdistr.per_worker(networks.PER_WORKER_BATCH), epochs=given.epochs, seed=1, verbose=0,
        callbacks=lambda: [measure.callback(str(folder)), first_step(folder)],
        run_dir=folder / "run" if cluster else None,
    )  # fmt: skip


if __name__ == "__main__":
    hosts = None
    if given.hosts:
        hosts = tfdistr.ssh_cluster(given.hosts, workers_per_host=given.per_host, ssh=given.ssh, warm=False)
    for each in given.networks:
        fit(each, given.folder / each, hosts)

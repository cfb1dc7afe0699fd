"""A run through tfdistr from Python."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import measure
import networks

import tfdistr

parser = argparse.ArgumentParser()
parser.add_argument("network", choices=networks.NETWORKS)
parser.add_argument("folder")
parser.add_argument("--workers", type=int, help="by default, join what TF_CONFIG or MPI's launcher describe")
parser.add_argument("--communication", default="auto")
parser.add_argument("--alongside", type=int, default=1, help="how many such runs take place at the same time")
parser.add_argument("--cores", type=int, default=1, help="cores of each worker")
parser.add_argument("--shares", type=int, default=1, help="batches that make a worker's batch")
parser.add_argument("--virtual", type=int, default=0, help="number of virtual workers; 0 for none")
parser.add_argument("--steps", type=int, help="train two epochs of so many steps")
given = parser.parse_args()

if __name__ == "__main__":
    x, y = networks.data(given.network)
    name, folder, alongside = given.network, given.folder, given.alongside
    joins = given.workers is None
    Path(folder, "called").write_text(str(time.time()))
    tfdistr.distributed_fit(
        lambda: networks.model(name), x, y,
        cluster=None if joins else tfdistr.local_cluster(given.workers, cores_per_worker=given.cores),
        strategy=tfdistr.multi_worker_mirrored(communication=given.communication),
        batch_size=tfdistr.per_worker(given.shares * networks.PER_WORKER_BATCH),
        epochs=2 if given.steps else networks.NETWORKS[name].epochs, steps_per_epoch=given.steps, seed=1,
        virtual_workers=given.virtual or None,
        callbacks=lambda: [measure.callback(folder, alongside)],
        verbose=0, run_dir=None if joins else tempfile.mkdtemp(prefix="run", dir=folder),
    )  # fmt: skip

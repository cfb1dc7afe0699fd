"""Small fits in one session, cold and warm; see job.py. The last line printed is JSON."""

from __future__ import annotations

import json
import sys
import time

import networks

import tfdistr

if __name__ == "__main__":
    steps = int(sys.argv[1])
    x, y = networks.data("seed")

    def seconds(warm: bool) -> float:
        """The seconds of a fit."""
        began = time.monotonic()
        tfdistr.distributed_fit(
            lambda: networks.model("seed"), x, y,
            cluster=tfdistr.local_cluster(2, cores_per_worker=1, warm=warm),
            strategy=tfdistr.multi_worker_mirrored(communication="mpi"),
            batch_size=tfdistr.per_worker(networks.PER_WORKER_BATCH), epochs=2, steps_per_epoch=steps, seed=1,
            verbose=0,
        )  # fmt: skip
        return time.monotonic() - began

    cold = seconds(warm=False)
    seconds(warm=True)  # starts the server
    print(json.dumps({"cold": cold, "warm": seconds(warm=True)}))

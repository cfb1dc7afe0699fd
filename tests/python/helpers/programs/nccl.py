"""A worker that sees a GPU that is not there: FOLDER WHAT. TensorFlow takes the ring between CPUs for NCCL's.

WHAT is "own" (each worker has a GPU of its own), "shared" (all have the same one), "a CPU" (worker 1 sees
none), "fails" or "hangs" (the first exchange of worker 1), or "virtual" (workers). COMMUNICATION is what is
asked for.
"""

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf

import tfdistr
from tfdistr.collectives import nccl
from tfdistr.collectives.ring import TensorFlowCollectives

FOLDER, WHAT = Path(sys.argv[1]), sys.argv[2]
INDEX = tfdistr.cluster_from_env().worker_index


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def see_a_gpu() -> None:
    there = [] if WHAT == "a CPU" and INDEX == 1 else [SimpleNamespace(name="/physical_device:GPU:0")]
    tf.config.get_visible_devices = lambda kind=None: there if kind == "GPU" else []
    address = "0000:1B:00.0" if WHAT == "shared" else f"0000:{INDEX}B:00.0"
    nccl.addresses_of_gpus = lambda: (address,)


def disturb() -> None:
    def fail(self: object, tensor: object) -> None:
        raise tf.errors.InternalError(None, None, "NCCL: unhandled system error. Set NCCL_DEBUG=WARN.")

    if INDEX == 1 and WHAT == "fails":
        TensorFlowCollectives.sum = fail
    if INDEX == 1 and WHAT == "hangs":
        TensorFlowCollectives.sum = lambda self, tensor: time.sleep(1000)


if __name__ == "__main__":
    see_a_gpu()
    disturb()
    x = np.arange(32, dtype="float32").reshape(16, 2)
    strategy = tfdistr.multi_worker_mirrored(
        communication=os.environ.get("COMMUNICATION", "auto"), start_timeout=24
    )
    fit = tfdistr.distributed_fit(
        model, x, x[:, :1], batch_size=8, seed=1, verbose=0, strategy=strategy,
        virtual_workers=2 if WHAT == "virtual" else None,
    )  # fmt: skip
    found = {"communication": fit.params["communication"], "debug": os.environ.get("NCCL_DEBUG")}
    (FOLDER / f"{INDEX}.json").write_text(json.dumps(found))

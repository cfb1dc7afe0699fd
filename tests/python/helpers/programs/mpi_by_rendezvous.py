"""A worker that becomes a rank of MPI at the rendezvous: FOLDER WHAT. WHAT is what happens to worker 1.

It is "nothing", "another node" (the workers share no memory), "two hosts" (of two workers each), "no mpi",
"two devices" (a second CPU stands for a GPU), "killed", "killed on two hosts", "an error", or "cut" (the
network, in epoch 2). COMMUNICATION says what carries the gradients.
"""

import json
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfdistr
from tfdistr.collectives import choice
from tfdistr.collectives.mpi import agreement
from tfdistr.errors import ClusterStartError
from tfdistr.strategies.exact import replica
from tfdistr.utils.shared_names import mapped_names

FOLDER, WHAT = Path(sys.argv[1]), sys.argv[2]
CONFIG = tfdistr.cluster_from_env()
INDEX = CONFIG.worker_index if CONFIG else 0


def model() -> keras.Model:
    made = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
    made.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    return made


def happens(epoch: int, logs: object) -> None:
    if INDEX == 1 and epoch == 1 and WHAT in ("killed", "killed on two hosts"):
        os.kill(os.getpid(), signal.SIGKILL)
    if INDEX == 1 and epoch == 1 and WHAT == "an error":
        raise ValueError("this epoch is wrong")
    if epoch == 1 and WHAT == "cut":
        (FOLDER / "began").touch()


def change_start() -> None:
    for name in ("FI_PROVIDER", "UCX_TLS"):  # of the tests
        os.environ.pop(name, None)
    if WHAT in ("another node", "cut"):  # a cut network stops no workers that share memory
        agreement.node = lambda: f"node-{INDEX}"
    if WHAT.endswith("two hosts"):
        agreement.node = lambda: f"node-{INDEX // 2}"
    if WHAT == "two devices":
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
        replica.device_of_rank = lambda: "/device:CPU:1"
    if INDEX != 1:
        return

    def no_mpi() -> object:
        raise ClusterStartError("", received="no mpi4py")

    if WHAT == "no mpi":
        choice.MpiLibrary = no_mpi


if __name__ == "__main__":
    change_start()
    x = np.random.default_rng(1).normal(size=(96, 8)).astype("float32")
    fit = tfdistr.distributed_fit(
        model, x, x.sum(1), batch_size=24, seed=1, verbose=0,
        epochs=10**6 if WHAT == "cut" else 3,
        strategy=tfdistr.multi_worker_mirrored(
            communication=os.environ.get("COMMUNICATION", "mpi") if CONFIG else "auto",
            start_timeout=120, heartbeat_timeout=6,
        ),
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_begin=happens)],
    )  # fmt: skip
    variables = {name: value for name, value in os.environ.items() if name.startswith("PMI_")}
    found = {
        "weights": [weight.ravel().tolist() for weight in fit.model.get_weights()],
        "communication": fit.params["communication"], "workers": fit.params["workers"],
        "variables": variables,
        "names": [str(path) for path in mapped_names(os.getpid()) if path.exists()],
    }  # fmt: skip
    (FOLDER / f"{INDEX}.json").write_text(json.dumps(found))

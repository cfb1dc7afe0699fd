"""A job on this machine that trains until it is told to stop. Usage: until_told.py CARRIER FOLDER

The workers find TOKEN in their environment. Each leaves in FOLDER what its environment has, and stops when
there is a file "stop".
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import tfdistr

CARRIER, FOLDER = sys.argv[1], Path(sys.argv[2])


def model():
    import keras

    made = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def callbacks():
    import keras

    token = hashlib.sha256(os.environ["TOKEN"].encode()).hexdigest()
    left = {"token": token, "preload": os.environ.get("LD_PRELOAD")}
    (FOLDER / f"worker-{os.getpid()}.json").write_text(json.dumps(left))

    class UntilTold(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = (FOLDER / "stop").exists()
            time.sleep(0.05)  # the job only has to be there

    return [UntilTold()]


if __name__ == "__main__":
    env = {"TOKEN": os.environ.pop("SECRET"), "LD_PRELOAD": "libm.so.6"}
    servers = CARRIER == "parameter_server"
    strategy = "parameter_server" if servers else tfdistr.multi_worker_mirrored(communication=CARRIER)
    fit = tfdistr.distributed_fit(
        model, np.ones((64, 3), "float32"), np.ones((64, 1), "float32"), epochs=1_000_000, seed=1, verbose=0,
        callbacks=callbacks, run_dir=FOLDER / "run",
        cluster=tfdistr.local_cluster(2, ps=int(servers), env=env), strategy=strategy,
    )  # fmt: skip
    print(fit, [worker["status"] for worker in fit.workers])

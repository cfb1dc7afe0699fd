"""A worker with a fault: the same call of distributed_fit() in every process of a job, or what starts one.

Usage: faulty.py JSON RESULT   (JSON: fault, and whose it is; writes to RESULT what the call raised, and when)
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.append(str(Path(__file__).parents[1] / "python" / "helpers" / "programs"))

from borrowed import borrow_server

import tfdistr

GIVEN = json.loads(sys.argv[1])
RESULT = Path(sys.argv[2])
FAULT = GIVEN.get("fault")


def mine(fault: str) -> bool:
    """Whether it is this worker's fault."""
    return fault == FAULT and int(os.environ.get("INDEX_OF_WORKER", "0")) == GIVEN.get("worker", 1)


def hang() -> None:
    until = time.monotonic() + 600
    while time.monotonic() < until:
        time.sleep(1.0)


def model() -> Any:
    import keras
    import tensorflow as tf

    os.environ["INDEX_OF_WORKER"] = str(getattr(tf.distribute.get_strategy(), "worker_index", 0))
    if mine("model_raises"):
        raise ValueError("bad model")
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def data(ctx: Any) -> Any:
    import numpy as np
    import tensorflow as tf

    if mine("data_raises"):
        raise ValueError("bad data")
    x = np.random.default_rng(0).normal(size=(512, 4)).astype("float32")
    found = tf.data.Dataset.from_tensor_slices((x, x[:, :1]))
    bad = mine("pipeline_raises")
    slow = mine("pipeline_hangs")
    calls = [0]

    def look(row: Any) -> Any:
        calls[0] += 1
        if calls[0] > 600 and bad:
            raise ValueError("bad row")
        if calls[0] > 600 and slow:
            hang()
        return row

    if FAULT in ("pipeline_raises", "pipeline_hangs"):  # the same pipeline on all workers
        found = found.map(lambda a, b: (tf.ensure_shape(tf.numpy_function(look, [a], tf.float32), [4]), b))
    return found


def callbacks() -> list[Any]:
    import keras

    def at_epoch(epoch: int, logs: Any) -> None:
        if epoch == 2 and os.environ["INDEX_OF_WORKER"] == "0" and GIVEN.get("ready"):
            Path(GIVEN["ready"]).touch()
        if epoch == 4 and mine("callback_raises"):
            raise ValueError("bad callback")
        if epoch == 4 and mine("callback_hangs"):
            hang()
        if epoch == 4 and mine("slow_callback"):
            time.sleep(GIVEN["seconds"])
        time.sleep(0.02)

    return [keras.callbacks.LambdaCallback(on_epoch_end=at_epoch)]


def main() -> dict[str, Any]:
    options = {"epochs": GIVEN.get("epochs", 1_000_000), "batch_size": 64, "seed": 1, "verbose": 0}
    options["failures"] = tfdistr.on_failure(step_timeout=GIVEN.get("step_timeout"))
    timeouts = {name: GIVEN[name] for name in ("start_timeout", "heartbeat_timeout") if name in GIVEN}
    if GIVEN.get("cluster"):
        borrow_server()
        cluster = tfdistr.local_cluster(GIVEN["cluster"], **{"start_timeout": 120} | timeouts)
        strategy = tfdistr.multi_worker_mirrored(communication=GIVEN["communication"])
    else:
        cluster, strategy = None, tfdistr.multi_worker_mirrored(**timeouts)
    try:
        fit = tfdistr.distributed_fit(
            model, data, callbacks=callbacks, cluster=cluster, strategy=strategy, **options
        )
        return {"said": "trained", "loss": fit.history["loss"][-1], "workers": fit.workers}
    except Exception as error:
        return {
            "said": f"{type(error).__name__}: {error}",
            "worker": getattr(error, "worker", None),
            "left": [vars(status) for status in getattr(error, "workers", [])],
        }


if __name__ == "__main__":
    started = time.time()
    found = main()
    found |= {"began": started, "time": time.time()}
    temporary = RESULT.with_suffix(f".{os.getpid()}")  # ranks of one mpiexec have one result
    temporary.write_text(json.dumps(found))
    temporary.rename(RESULT)
    if GIVEN.get("lives_on"):  # as a session does: only a process that ends is noticed by TensorFlow
        threading.Event().wait(600)
    sys.stdout.flush()
    if found["said"] != "trained":  # else it ends as a script does: it says goodbye to the others
        os._exit(1)

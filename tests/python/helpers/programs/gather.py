"""Calls gather() where no step of Keras runs, as one of two workers.

Usage: gather.py FILE   (which gets what came of it, as JSON)
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy(start_timeout=60)
file = Path(sys.argv[1]).with_name(f"{strategy.worker_index}.json")
own = tf.fill([1, 1], float(strategy.worker_index))


def refused(call) -> list[str]:
    try:
        call()
    except tfdistr.ArgumentError as error:
        return [error.message, error.received]
    raise AssertionError("it was not refused")


def gathered_by_tensorflow():
    return tf.distribute.get_replica_context().all_gather(own, axis=0)


with strategy.scope():
    told = {"scope": refused(lambda: tfdistr.gather(own))}
told["loop"] = refused(lambda: strategy.run(lambda: tfdistr.gather(own)))
told["all_gather"] = strategy.run(gathered_by_tensorflow).numpy().tolist()
told["outside"] = tfdistr.gather(tf.fill([1, 1], 5.0)).numpy().tolist()
file.write_text(json.dumps(told))

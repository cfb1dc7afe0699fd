"""Calls of distributed_fit() that differ between the two workers of a cluster.

Usage: mismatched.py FOLDER   (writes FOLDER/<index>.json: what each call raised here)
"""

import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdistr
from tfdistr import _version

config = tfdistr.cluster_from_env()
assert config is not None
OTHER = config.worker_index == 1
SCALE = "linear" if OTHER else "none"
X = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")


def model(units: int = 3) -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def pipeline() -> tf.data.Dataset:
    """Examples by index on one worker, and in their order alone on the other."""
    examples = tf.data.Dataset.from_tensor_slices((X, X[:, :1]))
    if OTHER:
        return examples
    return examples.filter(lambda *_: True).apply(tf.data.experimental.assert_cardinality(50))


def call(**arguments: Any) -> str:
    arguments = {"model": model, "x": X, "y": X[:, :1], "batch_size": 16, "epochs": 1, "seed": 3} | arguments
    try:
        tfdistr.distributed_fit(**arguments)
    except tfdistr.TfdistrError as error:
        return f"{type(error).__name__}: {error}"
    return "trained"


said = {
    "epochs and batch_size": call(epochs=1 + OTHER, batch_size=16 + OTHER),
    "seed": call(seed=3 + OTHER),
    "seed of one": call(seed=3 if OTHER else None),
    "learning rate": call(batch_size=tfdistr.per_worker(8, scale_learning_rate=SCALE)),
    "one example": call(x=X[: 50 - OTHER], y=X[: 50 - OTHER, :1]),
    "steps": call(x=lambda: tf.data.Dataset.from_tensor_slices((X, X[:, :1])).take(50 - 20 * OTHER), y=None),
    "reading": call(x=pipeline, y=None),
    "reading for validation": call(validation_data=pipeline),
    "examples": call(x=X[: 50 - 20 * OTHER], y=X[: 50 - 20 * OTHER, :1]),
}
version = _version.__version__
_version.__version__ = "0.0.9" if OTHER else version
said["version"] = call()
_version.__version__ = version
# Not to be recovered from: the workers are in the middle of making variables.
said["model"] = call(model=lambda: model(3 + OTHER))
Path(sys.argv[1], f"{int(OTHER)}.json").write_text(json.dumps(said))

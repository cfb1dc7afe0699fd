"""The chief of workers that were started by hand: model_parallel_by_hand.py OUTPUT."""

import os
import sys
import time
from typing import Any

import keras
import numpy as np

import tfdistr

rng = np.random.default_rng(0)
X = rng.normal(size=(101, 8)).astype("float32")
Y = (X[:, :4].sum(1) > 0).astype("int32")
ARGUMENTS: dict[str, Any] = {"epochs": 2, "batch_size": 32, "seed": 1, "verbose": 0}
PLACEMENT = {"first": "worker 0", "second": "/job:worker/task:1"}


def model() -> keras.Model:
    layers = [keras.layers.Dense(16, "relu", name="first"), keras.layers.Dense(2, name="second")]
    made = keras.Sequential([keras.Input((8,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return made


if __name__ == "__main__":
    told = keras.callbacks.Callback()
    fit = tfdistr.distributed_fit(
        model, X, Y, strategy=tfdistr.model_parallel(placement=PLACEMENT), callbacks=[told], **ARGUMENTS
    )
    # The workers are gone: the models are ones of this process.
    assert told.model is fit.model
    time.sleep(2)  # until they really are
    fit.model.predict(X[:5], verbose=0)
    weights = {f"weight_{i}": weight for i, weight in enumerate(fit.model.get_weights())}
    np.savez(f"{sys.argv[1]}/result.npz", workers=fit.params["workers"], **weights)
    sys.stdout.flush()
    os._exit(0)

"""Calls of distributed_fit() without a cluster: in this process, or as the task of TF_CONFIG.

Usage: joined.py FOLDER CASE...   (writes FOLDER/CASE.npz: history and weights)
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdistr

rng = np.random.default_rng(0)
X = rng.normal(size=(101, 4)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
WEIGHT = rng.uniform(size=101).astype("float32")


def frame() -> Any:
    import pandas as pd

    return pd.DataFrame(X, columns=list("abcd"))


def model(learning_rate: float = 0.1) -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(learning_rate, momentum=0.9), loss, metrics=["accuracy"])
    return made


def mixed_model() -> keras.Model:
    """Takes the columns of a data frame: numbers and a text."""
    inputs = {"a": keras.Input((), name="a"), "kind": keras.Input((), name="kind", dtype="string")}
    numbers = keras.layers.Reshape((1,))(inputs["a"])
    kinds = keras.layers.StringLookup(vocabulary=["even", "odd"], output_mode="one_hot")(inputs["kind"])
    joined = keras.layers.Concatenate()([numbers, kinds])
    made = keras.Model(inputs, keras.layers.Dense(2)(joined))
    made.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return made


def examples() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y))


# The arguments of each call, given the number of workers; batch_size, epochs and seed are the same for all.
# tests/equality has arrays, and fewer examples than workers.
CASES: dict[str, Callable[[int], dict[str, Any]]] = {
    "sample_weight": lambda workers: {
        "x": X, "y": Y, "sample_weight": WEIGHT, "validation_data": [X[:31], Y[:31], WEIGHT[:31]]},
    "mixed_data_frame": lambda workers: {
        "model": mixed_model, "x": frame()[["a"]].assign(kind=np.where(Y == 0, "even", "odd")), "y": Y},
    "function_of_context": lambda workers: {
        "x": lambda ctx: ctx.shard(examples()).map(lambda x, y: (x * 2, y)),
        "validation_data": lambda ctx: ctx.shard(examples().take(3))},
    "function_of_batches": lambda workers: {
        "x": lambda: examples().shuffle(101, seed=3).batch(17), "batch_size": None},
    # The batch and the learning rate that two workers have, also where one does the work of both.
    "per_worker_batch": lambda workers: {
        "x": X, "y": Y,
        "batch_size": tfdistr.per_worker(
            16 // workers * 2, scale_learning_rate="linear" if workers > 1 else "none"
        ),
        "model": lambda: model(0.2 / workers)},
}  # fmt: skip


def run(case: str, folder: str, workers: int) -> tfdistr.FitResult:
    arguments = {"model": model, "batch_size": 16, "epochs": 2, "seed": 5} | CASES[case](workers)
    fit = tfdistr.distributed_fit(**arguments)
    arrays = {f"weight_{number}": weight for number, weight in enumerate(fit.model.get_weights())}
    arrays |= {f"history_{name}": np.array(values) for name, values in fit.history.items()}
    sizes = (fit.params["batch_size"] or 0, fit.params["seed"])
    np.savez(os.path.join(folder, case + ".npz"), params=sizes, workers=fit.params["workers"], **arrays)
    return fit


if __name__ == "__main__":
    config = tfdistr.cluster_from_env()
    for name in sys.argv[2:]:
        run(name, sys.argv[1], config.num_workers if config else 1)

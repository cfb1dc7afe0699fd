"""A job of a second, for the tests and for the program that Slurm starts."""

from typing import Any

import numpy as np

import tfdistr

X = np.random.default_rng(1).normal(size=(90, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def train(**options: Any) -> Any:
    """Train a small model, with the options of ``distributed_fit()``."""
    def model() -> Any:
        import keras

        made = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(1)])
        made.compile("sgd", "mse")
        return made

    given = {"epochs": 3, "batch_size": 20, "seed": 1, "verbose": 0}
    return tfdistr.distributed_fit(model, X, Y, **given | options)

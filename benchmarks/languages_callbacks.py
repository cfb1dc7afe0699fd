"""The seconds of a batch, with and without callbacks of Python; see languages.py. Arguments: BATCHES OUT."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tfdistr

EPOCHS = 4
BATCH = 16


def seconds_of_batch(batches: int, make_callback: Callable[[], Any] | None) -> float:
    """The median of the epochs but the first, for each batch."""
    moments: list[float] = []

    def model() -> keras.Model:
        made = keras.Sequential([keras.layers.Dense(1)])
        made.compile("sgd", "mse")
        return made

    def callbacks() -> list[Any]:
        ends = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: moments.append(time.time()))
        return [ends, *([make_callback()] if make_callback else [])]

    x = np.zeros((batches * BATCH, 8), "float32")
    tfdistr.distributed_fit(
        model, x, x[:, :1], batch_size=BATCH, epochs=EPOCHS, seed=1, callbacks=callbacks, verbose=0
    )
    return statistics.median(np.diff(moments)) / batches


def each_batch() -> Any:
    """A callback that reads the loss of each batch."""
    losses: list[float] = []
    return keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: losses.append(logs["loss"]))


def each_epoch() -> Any:
    """A callback that reads the loss of each epoch."""
    losses: list[float] = []
    return keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: losses.append(logs["loss"]))


if __name__ == "__main__":
    number = int(sys.argv[1])
    seconds = {
        "none": seconds_of_batch(number, None),
        "after each epoch": seconds_of_batch(number, each_epoch),
        "after each batch": seconds_of_batch(number, each_batch),
    }
    Path(sys.argv[2]).write_text(json.dumps(seconds))

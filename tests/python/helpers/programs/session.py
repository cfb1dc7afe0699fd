"""Calls of distributed_fit() in a session that lives on after a failure of worker 1.

Usage: session.py interrupt|exit|unavailable   (prints what each call came to)
"""

import os
import signal
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import tfdistr

FAULT = sys.argv[1]


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def fails_on_worker_1() -> list[keras.callbacks.Callback]:
    index = tf.distribute.get_strategy().worker_index

    def at_epoch(epoch: int, logs: Any) -> None:
        if index == 1 and epoch == 1:
            if FAULT == "interrupt":
                signal.raise_signal(signal.SIGINT)
            if FAULT == "exit":
                sys.exit(3)
            raise tf.errors.UnavailableError(None, None, "no such bucket")

    return [keras.callbacks.LambdaCallback(on_epoch_end=at_epoch)]


def call(**options: Any) -> None:
    x = np.ones((64, 4), "float32")
    try:
        fit = tfdistr.distributed_fit(model, x, x[:, :1], verbose=0, **options)
        print(f"CALL: {len(fit.history['loss'])} epochs", flush=True)
    except (Exception, KeyboardInterrupt) as error:
        print(f"CALL: {type(error).__name__}: {error}".replace("\n", " | "), flush=True)


call()
call(strategy=tfdistr.multi_worker_mirrored(communication="ring"))
call(callbacks=fails_on_worker_1, epochs=10_000)
call()

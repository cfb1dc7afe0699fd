"""Calls of distributed_fit() in a process whose peer, the last worker, ends by itself.

Usage: lost.py HOW FILE   (prints what each call came to, and how many seconds after the end that was)

HOW is how the last worker ends: "waits" (it is killed while the others wait for it to call), "forked" (it is
killed while it trains, and a child lives on) or "leaves" (without a word, when all have trained). It writes
the time of its end into FILE.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import tfdistr

HOW, ENDED = sys.argv[1], Path(sys.argv[2])


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def end() -> None:
    if HOW == "forked" and os.fork() == 0:
        signal.alarm(15)
        signal.pause()
    ENDED.write_text(str(time.time()))
    if HOW == "leaves":
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def is_last() -> bool:
    strategy: Any = tf.distribute.get_strategy()
    return bool(strategy.worker_index == strategy.num_workers - 1)


def ends_while_it_trains() -> list[keras.callbacks.Callback]:
    last = is_last()

    def at_epoch(epoch: int, logs: Any) -> None:
        if last and epoch == 3:
            end()

    return [keras.callbacks.LambdaCallback(on_epoch_end=at_epoch)]


def call(**options: Any) -> Any:
    x = np.ones((64, 4), "float32")
    try:
        fit = tfdistr.distributed_fit(model, x, x[:, :1], verbose=0, **options)
        print(f"CALL: {len(fit.history['loss'])} epochs", flush=True)
        return fit
    except tfdistr.TfdistrError as error:
        seconds = time.time() - float(ENDED.read_text())
        print(f"CALL: {seconds:.1f} s: {type(error).__name__}: {error}".replace("\n", " | "), flush=True)
        return None


fit = call()
last = tfdistr.cluster_from_env().worker_index == tfdistr.cluster_from_env().num_workers - 1
if HOW == "forked":
    call(callbacks=ends_while_it_trains, epochs=100_000)
elif HOW == "waits":
    if last:
        time.sleep(2)  # the others wait for it
        end()
    call()
else:
    if last:
        end()
    time.sleep(5)
    fit.model.save(ENDED.with_suffix(".keras"))
    print("CALL: saved", flush=True)

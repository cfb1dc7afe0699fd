"""Calls of distributed_fit() of which one fails on the last worker. Prints what each call came to.

Usage: calls.py HOW [FILE]

"interrupt", "exit" and "unavailable": errors of a callback, and a call after them, in a session that lives
on. "late": a model fails while worker 1 is stopped. "waits": the worker is killed while the others wait for
it to call. "forked": it is killed while it trains, and a child lives on. "leaves": it ends without a word
when all have trained. For the last three, FILE gets the time of that end, and an error is printed with the
seconds after it.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdistr

HOW = sys.argv[1]
ENDED = Path(sys.argv[2]) if len(sys.argv) > 2 else None
HALTED = (
    "import os, signal, sys, time; pid = int(sys.argv[1]); os.kill(pid, signal.SIGSTOP); time.sleep(5); "
    "os.kill(pid, signal.SIGCONT)"
)


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def broken() -> keras.Model:
    raise ValueError("a fault")


def end() -> None:
    assert ENDED is not None
    if HOW == "forked" and os.fork() == 0:
        signal.alarm(15)
        signal.pause()
    ENDED.write_text(str(time.time()))
    if HOW == "leaves":
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    if HOW == "forked":
        end()
    if HOW == "interrupt":
        signal.raise_signal(signal.SIGINT)
    if HOW == "exit":
        sys.exit(3)
    raise tf.errors.UnavailableError(None, None, "no such bucket")


def fails_in_training() -> list[keras.callbacks.Callback]:
    def at_epoch(epoch: int, logs: Any) -> None:
        if last and epoch == 2:
            fail()

    return [keras.callbacks.LambdaCallback(on_epoch_end=at_epoch)]


def call(make: Any = model, **options: Any) -> Any:
    x = np.ones((64, 4), "float32")
    try:
        fit = tfdistr.distributed_fit(make, x, x[:, :1], verbose=0, **options)
        print(f"CALL: {len(fit.history['loss'])} epochs", flush=True)
        return fit
    except (Exception, KeyboardInterrupt) as error:
        since = f"{time.time() - float(ENDED.read_text()):.1f} s: " if ENDED else ""
        print(f"CALL: {since}{type(error).__name__}: {error}".replace("\n", " | "), flush=True)
        return None


config = tfdistr.cluster_from_env()
assert config is not None
last = config.worker_index == config.num_workers - 1
fit = call()
if HOW in ("interrupt", "exit", "unavailable"):
    call(strategy=tfdistr.multi_worker_mirrored(communication="ring"))
    call(callbacks=fails_in_training, epochs=10_000)
    call()
elif HOW == "late":
    if config.worker_index == 1:
        subprocess.Popen([sys.executable, "-c", HALTED, str(os.getpid())])
    if last:
        time.sleep(2)
    call(broken if last else model)
elif HOW == "forked":
    call(callbacks=fails_in_training, epochs=100_000)
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

"""Calls of distributed_fit() on three workers: worker 2 fails while worker 1 is stopped, and worker 0 ends.

Usage: hears_late.py   (prints what each call came to)
"""

import os
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import tfdistr

HALTED = "import os, signal, sys, time; pid = int(sys.argv[1]); os.kill(pid, signal.SIGSTOP); time.sleep(5); "
GOES_ON = "os.kill(pid, signal.SIGCONT)"


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def broken() -> keras.Model:
    raise ValueError("a fault")


def call(make: object) -> None:
    x = np.ones((64, 4), "float32")
    try:
        fit = tfdistr.distributed_fit(make, x, x[:, :1], verbose=0)
        print(f"CALL: {len(fit.history['loss'])} epochs", flush=True)
    except (tfdistr.TfdistrError, ValueError) as error:
        print(f"CALL: {type(error).__name__}: {error}".replace("\n", " | "), flush=True)


call(model)
worker = tfdistr.cluster_from_env().worker_index
if worker == 1:
    subprocess.Popen([sys.executable, "-c", HALTED + GOES_ON, str(os.getpid())])
if worker == 2:
    time.sleep(2)
call(broken if worker == 2 else model)

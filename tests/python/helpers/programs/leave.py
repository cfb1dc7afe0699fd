"""A worker that after some seconds ends, fails or waits. Usage: leave.py SECONDS (end|raise|wait|early)"""

import sys
import time

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy(start_timeout=60)

import tensorflow as tf  # noqa: E402

from tfdistr.strategies import multi_worker_mirrored  # noqa: E402

total = strategy.reduce("SUM", tf.constant(1), axis=None)
print("workers:", int(total), flush=True)
time.sleep(float(sys.argv[1]))
if sys.argv[2] == "raise":
    raise ValueError("the loss is green")
if sys.argv[2] == "wait":
    strategy.reduce("SUM", tf.constant(1), axis=None)
if sys.argv[2] == "early":
    multi_worker_mirrored.EXIT_TIMEOUT = 1.0
print("done", flush=True)

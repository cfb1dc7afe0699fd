"""Worker 1 is late for a collective with a limit. Usage: slow_peer.py LIMIT LATE IMPLEMENTATION (seconds)"""

import sys
import time

import tensorflow as tf

import tfdistr

options = tf.distribute.experimental.CommunicationOptions(
    timeout_seconds=float(sys.argv[1]),
    implementation=tf.distribute.experimental.CommunicationImplementation[sys.argv[3]],
)
strategy = tfdistr.MultiWorkerMirroredStrategy(communication_options=options, start_timeout=60)


def total() -> int:
    return int(strategy.reduce("SUM", tf.constant(1.0), axis=None))


assert total() == 2
if strategy.worker_index == 1:
    time.sleep(float(sys.argv[2]))
began = time.monotonic()
try:
    print(f"sum: {total()}\n", end="", flush=True)  # one write: ranks share the output
except tf.errors.DeadlineExceededError:
    print(f"exceeded after {time.monotonic() - began:.1f} s", flush=True)
    raise

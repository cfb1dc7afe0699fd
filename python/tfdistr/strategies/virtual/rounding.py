"""The conditions for equal rounding on all machines: the same kernels, and one thread per operation."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
from collections import Counter
from pathlib import Path

import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.collectives.interface import Collectives
from tfdistr.errors import ArgumentError
from tfdistr.utils.processes import usable_cores

log = logging.getLogger("tfdistr")


def compare_machines(collectives: Collectives) -> None:
    """Warn of workers whose machine rounds differently from most. All workers must call it."""
    found = [text.split(" ", 1) for text in collectives.exchange(describe_kernels())]
    (usual, _), *_ = Counter(bits for bits, _ in found).most_common(1)
    for worker, (bits, name) in enumerate(found):
        if bits != usual:
            other = next(name for bits, name in found if bits == usual)
            log.warning(
                "Worker %d (%s) rounds a test computation differently from most workers (%s). With virtual "
                "workers, results are bitwise identical only on machines with the same kind of processor, "
                "the same TensorFlow, and the same value of TF_ENABLE_ONEDNN_OPTS.",
                worker,
                name,
                other,
            )


def describe_kernels() -> str:
    """Return the digest of the computation in this process, and the name of the processor."""
    return f"{digest()} {processor()}"


def digest() -> str:
    """Return the digest of a fixed computation with the usual kernels in this process."""
    random = np.random.default_rng(0)
    images = tf.constant(random.normal(size=(4, 16, 16, 3)), tf.float32)
    filters = tf.constant(random.normal(size=(3, 3, 3, 8)), tf.float32)
    weights = tf.constant(random.normal(size=(1568, 64)), tf.float32)
    with tf.device("CPU:0"), tf.GradientTape() as tape:
        tape.watch([filters, weights])
        hidden = tf.reshape(tf.nn.relu(tf.nn.conv2d(images, filters, 1, "VALID")), [4, -1])
        loss = tf.reduce_logsumexp(tf.tanh(hidden @ weights / 40))
    values = [loss, *tape.gradient(loss, [filters, weights])]
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in values)).hexdigest()[:16]


def processor() -> str:
    """Return the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def may_use_one_thread() -> bool:
    """Return whether ``use_one_thread()`` can do so in this process."""
    return not tf_internals.context_initialized() or _threads() == 1


def use_one_thread() -> None:
    """Give each operation one thread, so that its rounding does not depend on the cores of the machine.

    A matrix product or a convolution on two threads adds in another order. A worker with several cores
    computes its virtual workers side by side instead.
    """
    if not tf_internals.context_initialized():
        tf.config.threading.set_intra_op_parallelism_threads(1)
        return
    threads = _threads()
    if threads != 1:
        raise ArgumentError(
            "With virtual workers, each TensorFlow operation must have one thread: the number of threads "
            "changes the rounding.",
            received=f"a process in which TensorFlow already runs, with {threads} threads for an operation",
            fix="Make the call before anything else uses TensorFlow, call "
            "tf.config.threading.set_intra_op_parallelism_threads(1) first, or pass "
            "cluster=local_cluster(1), which trains in a separate process.",
        )


def _threads() -> int:
    """Return the number of threads of an operation, if TensorFlow runs already."""
    given = os.environ.get("TF_NUM_INTRAOP_THREADS")
    return tf.config.threading.get_intra_op_parallelism_threads() or int(given or len(usable_cores()))

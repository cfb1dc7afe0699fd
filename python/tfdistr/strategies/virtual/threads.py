"""One thread for each virtual worker."""

from __future__ import annotations

import os

import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError
from tfdistr.utils.processes import usable_cores


def may_use_one_thread() -> bool:
    """Return whether ``use_one_thread()`` can do so in this process."""
    return not tf_internals.context_initialized() or _threads() == 1


def use_one_thread() -> None:
    """Give each operation one thread, so that its rounding does not depend on the cores of the machine.

    A matrix product or a convolution on two threads adds in another order. A worker with several cores
    computes its virtual workers side by side instead.

    Raises:
        ArgumentError: TensorFlow is already in use in this process, with more threads.
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

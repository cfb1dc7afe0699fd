"""Errors that only say that another worker failed."""

from __future__ import annotations

import re

from tfdistr.errors import PEER_MARK, WorkerFailedError

# What TensorFlow adds to a message that a worker left.
_ADDED = re.compile(
    r"\nThe error could be from a previous operation| \[type\.googleapis\.com|\nAdditional GRPC error"
    r"|\n\t? ?\[\[|\n\t? ?\[Op:| \[Op:"
)
_REPORTED = re.compile(re.escape(PEER_MARK) + r" worker (\d+): (.*)", re.DOTALL)


def report(worker: int, error: BaseException) -> str:
    """What worker ``worker``, which failed with ``error``, tells its peers."""
    return f"{PEER_MARK} worker {worker}: {type(error).__name__}: {error}"


def is_peer_failure(error: BaseException) -> bool:
    """Whether the error only says that another worker is gone or failed."""
    try:
        import tensorflow as tf
    except ImportError:  # the error itself, most likely
        return False
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, tf.errors.UnavailableError | tf.errors.AbortedError) or PEER_MARK in str(chain):
            return True
        chain = chain.__cause__ or chain.__context__
    return False


def reported_failure(error: BaseException) -> WorkerFailedError | None:
    """The failure that another worker reported, if the error is about one."""
    chain: BaseException | None = error
    while chain is not None:
        found = _REPORTED.search(str(chain))
        if found:
            worker, message = int(found[1]), _ADDED.split(found[2])[0]
            return WorkerFailedError(f"Worker {worker} failed: {message}", worker=worker, host="unknown")
        chain = chain.__cause__ or chain.__context__
    return None

"""Errors that only say that another worker failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tfdistr.errors import PEER_MARK, WorkerFailedError

# What TensorFlow adds to a message that a worker left.
_ADDED = re.compile(
    r"\nThe error could be from a previous operation| \[type\.googleapis\.com|\nAdditional GRPC error"
    r"|\n\t? ?\[\[|\n\t? ?\[Op:| \[Op:"
    r"|\nTraceback \(most recent call last\):\s+File [^\n]*script_ops"  # of a function in the graph
)
_REPORTED = re.compile(re.escape(PEER_MARK) + r" worker (\d+): (.*)", re.DOTALL)
# Whom TensorFlow could not reach, or did not hear of any more.
_TASK = r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)"
_SILENT = re.compile(rf"stopped sending heartbeats\):\n{_TASK}|Task {_TASK} heartbeat timeout")
# How a worker is lost, and what its user can do.
_SILENT_NOW = "does not answer any more: it was killed or halted, or its machine or network has failed."
_ENDED = "has ended without saying why: it was killed, or it crashed."
_LOOK = "Look at its log, and at that of its machine (dmesg says whether memory was the reason)."
UNREACHED = re.compile(rf"(?:remote target|Error reported from) {_TASK}")


def report(worker: int, error: BaseException) -> str:
    """What worker ``worker``, which failed with ``error``, tells its peers."""
    return f"{PEER_MARK} worker {worker}: {type(error).__name__}: {error}".rstrip(": ")


def report_end(worker: int, address: str) -> str:
    """What the peers of worker ``worker`` are told when its process has ended and it has said nothing."""
    return f"{PEER_MARK} worker {worker}: {address} {_ENDED}"


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


def reported_failure(
    error: BaseException, tasks: Mapping[str, str] | None = None
) -> WorkerFailedError | None:
    """The failure of another worker that was reported, if the error is about one.

    Args:
        error: What TensorFlow raised.
        tasks: The addresses of the workers, as for ``lost_worker()``, if they are known.
    """
    addresses = list((tasks or {}).values())
    chain: BaseException | None = error
    while chain is not None:
        found = _REPORTED.search(str(chain))
        if found:
            worker, message = int(found[1]), _ADDED.split(found[2])[0]
            host = addresses[worker].rpartition(":")[0] if worker < len(addresses) else "unknown"
            return WorkerFailedError(
                f"Worker {worker} failed: {message}",
                worker=worker,
                host=host,
                fix=_LOOK if message.endswith((_SILENT_NOW, _ENDED)) else None,
            )
        chain = chain.__cause__ or chain.__context__
    return None


def lost_worker(error: BaseException, tasks: Mapping[str, str]) -> WorkerFailedError | None:
    """The worker that is gone, if the error says which.

    Args:
        error: What TensorFlow raised.
        tasks: The addresses of the workers in order, by their names such as "worker 0".
    """
    names = list(tasks)
    chain: BaseException | None = error
    while chain is not None:
        found = UNREACHED.search(str(chain)) or _SILENT.search(str(chain))
        name = " ".join(filter(None, found.groups())) if found else ""
        if name in names:
            address = tasks[name]
            return WorkerFailedError(
                f"Worker {names.index(name)} failed: {address} {_SILENT_NOW}",
                worker=names.index(name),
                host=address.rpartition(":")[0],
                fix=_LOOK,
            )
        chain = chain.__cause__ or chain.__context__
    return None


@dataclass(frozen=True)
class Verdict:
    """Whose failure an error is.

    Attributes:
        failure: The failure of another process, to be raised in place of the error; None if there is none.
        news: What the peers should be told; None if they know it.
        summary: What has failed, for calls that come later.
    """

    failure: WorkerFailedError | None
    news: str | None
    summary: str


def judge(
    error: BaseException,
    worker: int,
    tasks: Mapping[str, str],
    find_lost: Callable[[BaseException], WorkerFailedError | None] = lambda error: None,
) -> Verdict:
    """Find out whose failure an error is that worker ``worker`` has met.

    Args:
        error: The error.
        worker: The index of this worker.
        tasks: The addresses of the workers, as for ``lost_worker()``.
        find_lost: Names another process that is gone, if the error is about one.
    """
    failure = reported = reported_failure(error, tasks)
    if failure is None and is_peer_failure(error):
        failure = find_lost(error) or lost_worker(error, tasks)
    news = what_to_tell(error, worker, tasks) if reported is None else None
    return Verdict(failure, news, str(failure or what_to_tell(error, worker, {})))


def what_to_tell(error: BaseException, worker: int, tasks: Mapping[str, str]) -> str:
    """What worker ``worker``, which ends with ``error``, tells its peers: not all notice a loss as soon.

    Args:
        error: What was raised in it.
        worker: Its index.
        tasks: The addresses of the workers, as for ``lost_worker()``.
    """
    known = reported_failure(error) or lost_worker(error, tasks)
    if known is None:
        return report(worker, error)
    return f"{PEER_MARK} worker {known.worker}: {known.message.partition(': ')[2]}"

"""Errors for workers that differ, and errors that only report the failure of another worker."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfdistr.errors import PEER_MARK, JobMismatchError, WorkerFailedError

# The text that TensorFlow adds to the message of a worker.
_ADDED = re.compile(
    r"\nThe error could be from a previous operation| \[type\.googleapis\.com|\nAdditional GRPC error"
    r"|\n\t? ?\[\[|\n\t? ?\[Op:| \[Op:"
    r"|\nTraceback \(most recent call last\):\s+File [^\n]*script_ops"  # of a function in the graph
)
_REPORTED = re.compile(re.escape(PEER_MARK) + r" worker (\d+): (.*)", re.DOTALL)
# Tasks that TensorFlow could not reach, or that stopped their heartbeats.
_TASK = r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)"
_SILENT = re.compile(rf"stopped sending heartbeats\):\n{_TASK}|Task {_TASK} heartbeat timeout")
# The error of a worker whose own heartbeats do not arrive: the leader has exited, or the network is cut.
_UNHEARD = "RPC: /tensorflow.CoordinationService/Heartbeat"
# TensorFlow's text for a lost connection if a function around the exchange raises the error.
_REPLACED = "originally returned UnavailableError, and was replaced by InternalError"
# The ways to lose a worker, and a hint for the user.
_UNREACHABLE = "is unreachable: it was killed or stopped, or its machine or network failed."
_EXITED = "exited without an error message: it was killed, or it crashed."
_ENDED_EARLY = "its program has ended, but other workers have not."
_SEE_LOGS = "See its log, and the log of its machine (dmesg shows whether memory was the reason)."
_SAME_CALLS = "Make the same calls of fit(), evaluate() and predict() on every worker."
_FIXES = {_UNREACHABLE: _SEE_LOGS, _EXITED: _SEE_LOGS, _ENDED_EARLY: _SAME_CALLS}
_LONGEST = 10_000  # characters of an error's text for the peers
UNREACHED = re.compile(rf"(?:remote target|Error reported from) {_TASK}")


def report(worker: int, error: BaseException) -> str:
    """Return the message of worker ``worker``, which failed with ``error``, to its peers."""
    text = str(error)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}... (the log of worker {worker} has all)"
    return f"{PEER_MARK} worker {worker}: {type(error).__name__}: {text}".rstrip(": ")


def report_end(worker: int, address: str) -> str:
    """Return the message to the peers of worker ``worker`` when its process has exited without a message."""
    return f"{PEER_MARK} worker {worker}: {address} {_EXITED}"


def report_early_end(worker: int) -> str:
    """Return the message to the peers of worker ``worker`` when its program ends long before theirs."""
    return f"{PEER_MARK} worker {worker}: {_ENDED_EARLY}"


def report_silence(worker: int, address: str) -> str:
    """Return the message to the peers of worker ``worker`` when its process sends no heartbeats."""
    return f"{PEER_MARK} worker {worker}: {address} {_UNREACHABLE}"


def is_peer_failure(error: BaseException) -> bool:
    """Return whether the error only says that another worker was lost or failed."""
    try:
        import tensorflow as tf
    except ImportError:  # the error itself, most likely
        return False
    lost = tf.errors.UnavailableError | tf.errors.AbortedError
    marks = (PEER_MARK, _UNHEARD, _REPLACED)
    return any(isinstance(each, lost) or any(mark in str(each) for mark in marks) for each in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and those from which it came."""
    chain: BaseException | None = error
    while chain is not None:
        yield chain
        chain = chain.__cause__ or chain.__context__


def reported_failure(
    error: BaseException, tasks: Mapping[str, str] | None = None
) -> WorkerFailedError | None:
    """Return the failure that another worker has reported; None if the error is not about such a report."""
    addresses = list((tasks or {}).values())
    for each in _chain(error):
        found = _REPORTED.search(str(each))
        if found:
            worker, message = int(found[1]), _ADDED.split(found[2])[0]
            host = addresses[worker].rpartition(":")[0] if worker < len(addresses) else "unknown"
            return WorkerFailedError(
                f"Worker {worker} failed: {message}",
                worker=worker,
                host=host,
                fix=next((fix for end, fix in _FIXES.items() if message.endswith(end)), None),
            )
    return None


def lost_worker(error: BaseException, tasks: Mapping[str, str]) -> WorkerFailedError | None:
    """Return the failure of the lost worker; None if the error does not name it."""
    names = list(tasks)
    for each in _chain(error):
        found = UNREACHED.search(str(each)) or _SILENT.search(str(each))
        name = " ".join(filter(None, found.groups())) if found else ""
        if name in names:
            address = tasks[name]
            return WorkerFailedError(
                f"Worker {names.index(name)} failed: {address} {_UNREACHABLE}",
                worker=names.index(name),
                host=address.rpartition(":")[0],
                fix=_SEE_LOGS,
            )
    return None


@dataclass(frozen=True)
class Verdict:
    """The process whose failure caused an error.

    Attributes:
        failure: The failure of another process, to raise in place of the error; None if there is none.
        news: The message about the failure to the peers.
        known: Whether a peer has reported the failure.
        summary: A text about the failure, for later calls.
    """

    failure: WorkerFailedError | None
    news: str
    known: bool
    summary: str


def attribute_failure(
    error: BaseException,
    worker: int,
    tasks: Mapping[str, str],
    find_lost: Callable[[BaseException], WorkerFailedError | None] = lambda error: None,
    heard: Callable[[], str | None] = lambda: None,
) -> Verdict:
    """Find the process whose failure caused an error in ``worker``, by what was lost or ``heard``."""
    failure = reported = reported_failure(error, tasks)
    if failure is None and is_peer_failure(error):
        # The error may be about a worker that exited because of the first failure.
        message = heard()
        if message is not None:
            error = RuntimeError(message)
            failure = reported = reported_failure(error, tasks)
        else:
            failure = find_lost(error) or lost_worker(error, tasks)
    news = peer_message(error, worker, tasks)
    return Verdict(failure, news, reported is not None, str(failure or peer_message(error, worker, {})))


def peer_message(error: BaseException, worker: int, tasks: Mapping[str, str]) -> str:
    """Return the message of worker ``worker``, which fails with ``error``: some peers notice a loss later."""
    known = reported_failure(error) or lost_worker(error, tasks)
    if known is None:
        return report(worker, error)
    return f"{PEER_MARK} worker {known.worker}: {known.message.partition(': ')[2]}"


# Number of differences in a message: the first ones are enough to see the cause.
_SHOWN = 5


def mismatch(
    described: Sequence[Mapping[str, str | None]], names: Sequence[str] | None = None
) -> JobMismatchError | None:
    """Return the error that names the fields in which the workers differ; None if they are equal."""
    found = _differences(described, names or [f"worker {index}" for index in range(len(described))])
    if not found:
        return None
    more = len(found) - _SHOWN
    shown = [*found[:_SHOWN], *([f"{more} more differences"] if more > 0 else [])]
    return JobMismatchError(
        "All workers must run the same job.",
        received="; ".join(shown),
        fix="Run the same program with the same arguments, data and package versions on every worker.",
    )


def _differences(described: Sequence[Mapping[str, str | None]], names: Sequence[str]) -> list[str]:
    """Describe each field that differs: each value and its workers. The first worker's value comes first."""
    found = []
    for field in dict.fromkeys(field for fields in described for field in fields):
        workers: dict[str, list[str]] = {}
        for name, fields in zip(names, described, strict=True):
            value = fields.get(field, "nothing")
            if value is not None:
                workers.setdefault(value, []).append(name)
        if len(workers) > 1:
            who = [f"{value} on {' and '.join(which)}" for value, which in workers.items()]
            found.append(f"{field}: {', '.join(who)}")
    return found

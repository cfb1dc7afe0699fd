"""What went wrong with a worker, which worker was the first, and how that is said."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tfdistr._utils.log_tail import last_lines
from tfdistr.cluster.rendezvous_protocol import PORT_IN_USE
from tfdistr.errors import WorkerFailedError
from tfdistr.launch.process import Worker

_LOG_LINES = 20
#: Signals that a worker gets for its own fault, or from outside: never because another worker failed.
_FIRST_HAND = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


class Cause(IntEnum):
    """How likely a failure is the first one, from which the others followed; lower is likelier."""

    OWN = 0  # an error of its own, or a signal that no peer's failure brings about
    EXIT = 1  # it ended without saying why
    PEER = 2  # it said that another worker is gone


@dataclass(frozen=True)
class Failure:
    """A worker's failure.

    Args:
        worker: Its index.
        time: When it failed, or when that was seen; seconds since 1970.
        cause: What kind of failure.
        event: What it reported, if it did (see `tfdistr.launch.events`, "failed").
        exit_code: Its exit status or minus the signal that ended it; None while it runs.
        silence: Seconds for which it gave no sign of life, if that was it.
    """

    worker: int
    time: float
    cause: Cause
    event: Mapping[str, Any] | None = None
    exit_code: int | None = None
    silence: float | None = None

    @classmethod
    def reported(cls, event: Mapping[str, Any], exit_code: int | None) -> Failure:
        """Make one of what a worker reported."""
        cause = Cause.PEER if event.get("peer") else Cause.OWN
        return cls(event["worker"], event["time"], cause, event, exit_code)

    @classmethod
    def exited(cls, worker: int, time: float, exit_code: int) -> Failure:
        """Make one of an end that the worker did not explain."""
        cause = Cause.OWN if -exit_code in _FIRST_HAND else Cause.EXIT
        return cls(worker, time, cause, exit_code=exit_code)

    @classmethod
    def halted(cls, worker: int, time: float) -> Failure:
        """Make one of a worker that a signal halted, so that its peers lost it."""
        return cls(worker, time, Cause.OWN)

    @classmethod
    def silent(cls, worker: int, time: float, seconds: float) -> Failure:
        """Make one of a worker that gives no sign of life."""
        return cls(worker, time, Cause.OWN, silence=seconds)

    @property
    def port_in_use(self) -> bool:
        """Whether the worker's port was taken by another process before it came to listen there."""
        event = self.event or {}
        return PORT_IN_USE in str(event.get("message", ""))


def root_cause(failures: Iterable[Failure]) -> Failure:
    """Choose the failure from which the others followed: of the likeliest kind, the first by time."""
    return min(failures, key=lambda failure: (failure.cause, failure.time))


def worker_failed_error(
    failure: Failure, process: Worker, *, title: str, done: bool, attempts: int = 1
) -> WorkerFailedError:
    """Say what happened to a worker, with its own traceback, or else the end of its output.

    Args:
        failure: What happened.
        process: The worker's process.
        title: How the worker is named, such as "Worker 1 of 3".
        done: Whether it had reported that its work is done.
        attempts: How often the workers were started, for a port that was in use each time.
    """
    event = failure.event or {}
    traceback = str(event.get("traceback") or "").strip("\n") or None
    if event:
        said, fix = _reported(event, traceback)
    elif failure.silence is not None:
        said = f"gave no sign of life for {failure.silence:.0f} s: its machine or network has failed."
        fix = "See whether the host runs and can be reached, or pass a larger `heartbeat_timeout`."
    else:
        said, fix = _unexplained(failure.exit_code, done)
    if failure.port_in_use:
        fix = f"Free some ports: the workers were started {attempts} times, each time on others."
    parts = [f"{title} on {process.host} {said}"]
    if traceback:
        parts.append(traceback)
    else:
        lines = last_lines(process.log, _LOG_LINES)
        parts.append("\n".join(["Its last output:", *(f"  {line}" for line in lines)]) if lines else "")
    parts.append(f"Its log: {process.log}")
    return WorkerFailedError(
        "\n\n".join(filter(None, parts)),
        worker=failure.worker,
        host=process.host,
        pid=process.pid,
        exit_code=failure.exit_code,
        traceback=traceback,
        log=str(process.log),
        fix=fix,
    )


def _reported(event: Mapping[str, Any], traceback: str | None) -> tuple[str, str | None]:
    message = str(event.get("message", "")).strip()
    if traceback and message in traceback:
        message = message.partition("\n")[0]  # all of it follows
    what = ": ".join(filter(None, (str(event.get("error_type", "")), message)))
    if event.get("peer"):
        return f"lost another worker, and no worker reported an error of its own: {what}", None
    return f"failed: {what}", None


def what_ended(exit_code: int | None) -> str:
    """How a process ended that did not say why."""
    return _unexplained(exit_code, done=False)[0]


def _unexplained(exit_code: int | None, done: bool) -> tuple[str, str | None]:
    if exit_code is None:
        return (
            "was halted (SIGSTOP, or a debugger), so that the others lost it.",
            "Let every worker run while the job does.",
        )
    if exit_code == 0:
        return (
            "ended before its work was done, with exit status 0.",
            "Remove what ends the process (os._exit, sys.exit, quit) from the functions that you passed.",
        )
    after = " after its work was done, while it ended" if done else ""
    if exit_code > 0:
        return f"failed{after}: it ended with exit status {exit_code} and without saying why.", None
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    if name == "SIGKILL":
        return (
            f"was killed by SIGKILL{after} (often: out of memory).",
            "Give the job more memory: fewer workers, or smaller batches. The system's log (dmesg) says "
            "whether memory was the reason.",
        )
    return f"was killed by {name}{after}.", None

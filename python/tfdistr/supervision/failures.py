"""The failures of workers, their root cause, and its error."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from tfdistr.clusters.worker_process import Worker
from tfdistr.errors import WorkerFailedError
from tfdistr.rendezvous.protocol import PORT_IN_USE
from tfdistr.schemas.events import Event
from tfdistr.supervision.reporting import calls_of_r
from tfdistr.utils.disk import RESUME, is_full
from tfdistr.utils.gpus import fix_for_gpu
from tfdistr.utils.log_tail import last_lines

_LOG_LINES, _READ_LINES = 20, 200
_NCCL, _NCCL_LINES = " NCCL WARN ", 3
#: Signals for the worker's own error, or from outside: never because another worker failed.
_FIRST_HAND = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


class FailureKind(IntEnum):
    """The kind of a failure. A lower kind is more likely the root cause, from which the others followed."""

    OWN = 0  # the worker's own error, or a signal that the failure of a peer does not cause
    EXIT = 1  # the worker exited without a report
    PEER = 2  # the worker reported that another worker was lost


@dataclass(frozen=True)
class Failure:
    """A worker's failure.

    Args:
        order: The number of failures that the launcher knew before. The clocks of hosts may be hours apart.
        event: The report of the worker, if there is one (see `tfdistr.supervision.events`, "failed").
        exit_code: The exit status, or minus the signal that killed the worker; None while it runs.
        silence: Seconds without a heartbeat, if this is why the worker counts as failed.
    """

    worker: int
    order: int
    cause: FailureKind
    event: Event | None = None
    exit_code: int | None = None
    silence: float | None = None

    @classmethod
    def reported(cls, event: Event, order: int, exit_code: int | None) -> Failure:
        cause = FailureKind.PEER if event.get("peer") else FailureKind.OWN
        worker = event["worker"]
        assert worker is not None  # only the launcher has events without one
        return cls(worker, order, cause, event, exit_code)

    @classmethod
    def exited(cls, worker: int, order: int, exit_code: int) -> Failure:
        cause = FailureKind.OWN if -exit_code in _FIRST_HAND else FailureKind.EXIT
        return cls(worker, order, cause, exit_code=exit_code)

    @classmethod
    def paused(cls, worker: int, order: int) -> Failure:
        """Return the failure of a worker that a signal has stopped (SIGSTOP), so that its peers lost it."""
        return cls(worker, order, FailureKind.OWN)

    @classmethod
    def silent(cls, worker: int, order: int, seconds: float) -> Failure:
        return cls(worker, order, FailureKind.OWN, silence=seconds)

    @property
    def port_in_use(self) -> bool:
        """Return whether another process took the port of the worker before the worker listened there."""
        event = self.event or {}
        return PORT_IN_USE in str(event.get("message", ""))


def root_cause(failures: Iterable[Failure]) -> Failure:
    """Return the failure from which the others followed: the first to be known of the likeliest kind."""
    return min(failures, key=lambda failure: (failure.cause, failure.order))


def worker_failed_error(
    failure: Failure, process: Worker, *, title: str, done: bool, attempts: int = 1
) -> WorkerFailedError:
    """Return the error for a failed worker, with its traceback, or else the end of its output."""
    event = failure.event or {}
    traceback = str(event.get("traceback") or "").strip("\n") or None
    lines = last_lines(process.log, _READ_LINES)
    if event:
        said, fix = _reported(event, traceback)
    elif failure.silence is not None:
        said = f"sent no heartbeat for {failure.silence:.0f} s: its machine or network failed."
        fix = "Check that the host runs and is reachable, or pass a larger `heartbeat_timeout`."
    else:
        said, fix = _unexplained(failure.exit_code, done)
        if is_full(process.log):  # then neither a report nor the log may have the reason
            fix = f"The disk of {process.log.parent.parent} is full, which may be the reason. {RESUME}"
    fix = fix or fix_for_gpu("\n".join([said, traceback or ""] if event else lines))
    if failure.port_in_use:
        fix = f"Free some ports: the workers were started {attempts} times, each time on other ports."
    title, place = f"{title} on {process.host}", f"Its log: {process.log}"
    parts = [f"{title} {said}", traceback or _quoted("Its last output:", lines[-_LOG_LINES:])]
    if traceback:  # else these lines may be among the last
        parts.append(_quoted("NCCL's warnings:", [line for line in lines if _NCCL in line][-_NCCL_LINES:]))
    made = WorkerFailedError(
        "\n\n".join(filter(None, [*parts, place])),
        worker=failure.worker,
        host=process.host,
        pid=process.pid,
        exit_code=failure.exit_code,
        traceback=traceback,
        log=str(process.log),
        fix=fix,
    )
    if traceback:
        said, _ = _reported(event, None)
        made._in_short = "\n\n".join(filter(None, [f"{title} {said}", calls_of_r(traceback), place]))
    return made


def _quoted(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)]) if lines else ""


def _reported(event: Event, traceback: str | None) -> tuple[str, str | None]:
    message = str(event.get("message", "")).strip()
    if traceback and message in traceback:
        message = message.partition("\n")[0]  # the traceback has the whole message
    what = ": ".join(filter(None, (str(event.get("error_type", "")), message)))
    if event.get("peer"):
        return f"lost another worker, and no worker reported an error of its own: {what}", None
    return f"failed: {what}", None


def what_ended(exit_code: int | None) -> str:
    """Describe the end of a process that reported no error."""
    return _unexplained(exit_code, done=False)[0]


def _unexplained(exit_code: int | None, done: bool) -> tuple[str, str | None]:
    if exit_code is None:
        return (
            "was stopped (SIGSTOP, or a debugger), and the others lost it.",
            "Do not stop workers while the job runs.",
        )
    if exit_code == 0:
        return (
            "exited with status 0 before its work was done.",
            "Remove os._exit(), sys.exit() and quit() from the functions that you passed.",
        )
    after = " after its work was done, while it exited" if done else ""
    if exit_code > 0:
        return f"failed{after}: it exited with status {exit_code} without an error message.", None
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    if name == "SIGKILL":
        return (
            f"was killed by SIGKILL{after} (often: out of memory).",
            "Give the job more memory: fewer workers, or smaller batches. The system's log (dmesg) shows "
            "whether memory was the reason.",
        )
    return f"was killed by {name}{after}.", None

"""The watchdog: a worker that makes no step for too long fails and shows its stack, instead of hanging.

All workers make a step together, so all of them hang if one does. The worker to blame is the one that has not
reached the collective in which the others wait.

A Python thread does the work. The thread cannot run if the main thread hangs in C and holds the interpreter's
lock. Then a faulthandler thread shows the stacks a little later, and kills the process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import Any, Literal

from tfdistr.errors import StepTimeoutError
from tfdistr.rendezvous.peer_failure import report
from tfdistr.strategies.worker_strategy import OneProcessStrategy, Peer
from tfdistr.utils.interrupts import holds_back
from tfdistr.utils.processes import is_session

#: Seconds in which the main thread must raise the error after it was interrupted. On a busy machine, R has
#: taken more than three.
REACTION = 10.0
# The poll interval, in seconds, for whether the main thread holds the signal back.
_TO_SEE = 0.2
#: Seconds after which faulthandler acts if the thread cannot run.
LAST_RESORT = 20.0
_POLL_INTERVAL = 0.25
# Seconds for the peers to report the failure, after this process has reported it.
_TO_HEAR = 1.0
# Frames that a message shows: the innermost ones.
_FRAMES = 16


class _Process:
    """The running watchdog of this process."""

    watchdog: Watchdog | None = None


def progress() -> None:
    """Record that this process has made a step, of the training or of a validation."""
    if _Process.watchdog is not None:
        _Process.watchdog.progress()


class Watchdog:
    """A watchdog over the training in its scope, which must make steps.

    Args:
        timeout: Seconds that a step may take; None for no limit.
        worker: This process among its peers; by default, one without peers.

    Example:
        >>> with Watchdog(60.0, strategy):
        ...     train()  # calls progress() after each step
    """

    def __init__(self, timeout: float | None, worker: Peer | None = None) -> None:
        self._timeout = timeout
        self._worker = worker or OneProcessStrategy()
        self._last = self._armed = time.monotonic()
        self._end = threading.Event()
        self._error: StepTimeoutError | None = None

    def progress(self) -> None:
        """Record that a step was made."""
        self._last = time.monotonic()
        if self._last - self._armed > _POLL_INTERVAL:  # not for each step: it starts a thread
            self._rearm()

    def __enter__(self) -> Watchdog:
        if self._timeout is not None:
            _Process.watchdog = self
            self._main = threading.get_ident()
            self._last = time.monotonic()
            self._rearm()
            threading.Thread(target=self._watch, name="tfdistr-watchdog", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if self._timeout is not None:
            self._end.set()
            _Process.watchdog = None
            faulthandler.cancel_dump_traceback_later()
        if self._error is not None and error is not None:
            raise self._error from error
        return False

    def _rearm(self) -> None:
        assert self._timeout is not None
        self._armed = time.monotonic()
        with contextlib.suppress(RuntimeError, ValueError, OSError, AttributeError):  # there is no such file
            seconds = self._timeout + LAST_RESORT
            faulthandler.dump_traceback_later(seconds, exit=not is_session(), file=_error_file())

    def _watch(self) -> None:
        assert self._timeout is not None
        # Later than faulthandler in the worker to blame: else this one would be blamed.
        second = self._timeout + max(self._timeout, LAST_RESORT) + REACTION
        seen: float | None = None
        behind: list[int] = []
        while not self._end.wait(min(_POLL_INTERVAL, self._timeout / 4)):
            if seen not in (None, self._last):
                seen = None
                if self._worker.collectives is not None:
                    self._worker.collectives.moved_on()
            waited = time.monotonic() - self._last
            if waited < self._timeout or (seen == self._last and waited < second):
                continue
            last = self._last
            if seen != last:
                faulthandler.cancel_dump_traceback_later()  # this thread runs
                seen = last
                behind = self._behind()
                if self._index not in behind:
                    continue  # a peer is to blame and reports it
            if self._last == last and not self._end.is_set():
                self._fail(waited, [worker for worker in behind if worker != self._index])
                return

    @property
    def _index(self) -> int:
        return self._worker.worker_index

    def _behind(self) -> list[int]:
        """Return the workers for which all others wait."""
        collectives = self._worker.collectives
        return [self._index] if collectives is None else list(collectives.behind())

    def _fail(self, waited: float, behind: list[int]) -> None:
        frame = sys._current_frames().get(self._main)
        stack = "".join(traceback.format_list(traceback.extract_stack(frame)[-_FRAMES:])).rstrip()
        faulthandler.dump_traceback(_error_file())
        waits = f"; it waits for worker {' and '.join(map(str, behind))}" if behind else ""
        index = self._index
        title = self._worker.title or f"worker {index}"
        self._error = StepTimeoutError(
            f"A worker made no step within {self._timeout:g} s, which is `step_timeout`.",
            received=f"{title} on {socket.gethostname()} (process {os.getpid()}) "
            f"has made none for {waited:.0f} s{waits}. Its main thread, innermost last:\n{stack}",
            fix="See the stack for what it waits for; pass a larger `step_timeout` if a step, a callback or "
            "a validation takes so long.",
        )
        if self._main_thread_ends():
            return  # it raises the error, with R's call stack
        self._worker.report_failure(report(index, self._error))
        text = f"{type(self._error).__name__}: {self._error}"
        for listener in _listeners:
            listener(self._error, text)
        print(text, file=sys.stderr, flush=True)
        if not is_session():
            time.sleep(_TO_HEAR)  # with MPI, the end of this process ends all
            os._exit(1)

    def _main_thread_ends(self) -> bool:
        """Interrupt the main thread, and return whether it has left the training."""
        end = time.monotonic() + REACTION
        if not self._interrupt():
            return False
        while not self._end.wait(_TO_SEE):
            if time.monotonic() > end:
                return False
            if holds_back():
                self._interrupt()
        return True

    def _interrupt(self) -> bool:
        """Interrupt the main thread, as Ctrl-C does."""
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN or self._main != threading.main_thread().ident:
            return False
        os.kill(os.getpid(), signal.SIGINT)
        return True


#: Called with the error and its text before the process ends, if the main thread cannot raise the error.
_listeners: list[Any] = []


def add_failure_listener(listener: object) -> None:
    """Call ``listener(error, text)`` if the main thread hangs and cannot raise the error."""
    _listeners.append(listener)


def _error_file() -> int:
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # the stderr of R or of a notebook
        return 2

"""SIGTERM, with which Slurm, Kubernetes and others say that a process is about to be ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tfdistr.errors import JobStoppedError

from .checkpoint import Position


class ToldToEnd:
    """Within the context, SIGTERM does not end this process, but is noted.

    Only the main thread can look out for signals; elsewhere this does nothing.

    Args:
        on_signal: Called when the signal has come.
        active: Whether to look out for it.

    Attributes:
        told: Whether it has come.
    """

    def __init__(self, on_signal: Callable[[], object] = lambda: None, *, active: bool = True) -> None:
        self.told = False
        self._on_signal = on_signal
        self._active = active and threading.current_thread() is threading.main_thread()
        self._before: Any = None

    def __enter__(self) -> ToldToEnd:
        if self._active:
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._active:
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)

    def _note(self, number: int, frame: object) -> None:
        self.told = True
        self._on_signal()


def stopped(position: Position | None, run_dir: object) -> JobStoppedError:
    """The error with which a job ends that was told to end."""
    where = f"at {position}" if position else "before its first step"
    return JobStoppedError(
        f"The job was told to end (SIGTERM) and has saved what it has, {where}.",
        fix=f"Go on with the same call, run_dir={str(run_dir)!r} and resume=True.",
    )

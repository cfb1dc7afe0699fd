"""Preemption: SIGTERM, with which Slurm, Kubernetes and others say that they will end a process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tfdistr.errors import JobStoppedError, how_to_go_on

if TYPE_CHECKING:
    from tfdistr.checkpoint.folder import Position


class Preemption:
    """Within the context, SIGTERM does not end this process, but is noted.

    Only the main thread can look out for signals; elsewhere this does nothing.

    Args:
        on_signal: Called when the signal has come.
        active: Whether to look out for it.

    Attributes:
        signalled: Whether it has come.
    """

    def __init__(self, on_signal: Callable[[], object] = lambda: None, *, active: bool = True) -> None:
        self.signalled = False
        self._on_signal = on_signal
        self._active = active and threading.current_thread() is threading.main_thread()
        self._before: Any = None

    def __enter__(self) -> Preemption:
        if self._active:
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    def release(self) -> None:
        """Look out for it no more, as nothing can be saved; one that has come already comes again."""
        self._restore()
        self.pass_on()

    def pass_on(self) -> None:
        """Give this process, which looks out for it no more, a SIGTERM that nobody has acted on."""
        if self.signalled:
            self.signalled = False
            signal.raise_signal(signal.SIGTERM)

    def _restore(self) -> None:
        if self._active:
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)
        self._active = False

    def _note(self, number: int, frame: object) -> None:
        self.signalled = True
        self._on_signal()


def stopped(position: Position | None, run_dir: object = None) -> JobStoppedError:
    """The error with which a job ends that was told to end.

    Args:
        position: Where its newest checkpoint is, if it has one.
        run_dir: The folder of the checkpoints, if this process knows it.
    """
    saved = f"and has saved what it has, at {position}" if position else "before it had anything to save"
    return JobStoppedError(f"The job was told to end (SIGTERM) {saved}.", fix=how_to_go_on(run_dir))

"""Preemption: SIGTERM, with which Slurm, Kubernetes and others announce the end of a process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tfdistr.errors import JobStoppedError, how_to_resume

if TYPE_CHECKING:
    from tfdistr.checkpoint.folder import Position


class Preemption:
    """Within the context, SIGTERM does not end this process, but is noted.

    Only the main thread can handle signals; in other threads this does nothing.

    Args:
        on_signal: Called when the signal comes.
        active: Whether to handle the signal.

    Attributes:
        signalled: Whether the signal has come.
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
        """Stop handling the signal, as nothing can be saved; a signal that has come is raised again."""
        self._restore()
        self.pass_on()

    def pass_on(self) -> None:
        """Raise a noted SIGTERM again, which nobody has acted on; this process no longer handles it."""
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
    """Return the error of a job that was told to end.

    Args:
        position: The position of its newest checkpoint, if it has one.
        run_dir: The folder of the checkpoints, if this process knows it.
    """
    saved = f"and has saved what it has, at {position}" if position else "before it had anything to save"
    return JobStoppedError(f"The job was told to end (SIGTERM) {saved}.", fix=how_to_resume(run_dir))

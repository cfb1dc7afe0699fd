"""Preemption: SIGTERM, with which Slurm, Kubernetes and others announce that they will kill a process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfdistr.errors import JobStoppedError, how_to_resume

if TYPE_CHECKING:
    from tfdistr.checkpoint.folder import Position


class Preemption:
    """A context in which SIGTERM is recorded, and does not kill this process.

    Only the main thread can handle signals; in other threads this does nothing.
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

    def __exit__(self, *error: object) -> None:
        self._restore()

    def release(self) -> None:
        """Stop handling the signal, as nothing can be saved; raise again a signal that has arrived."""
        self._restore()
        self.pass_on()

    def pass_on(self) -> None:
        """Raise a recorded SIGTERM again, which nobody has handled; this process no longer handles it."""
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
    """Return the error of a preempted job; ``position`` is that of its newest checkpoint."""
    saved = f"and saved a checkpoint at {position}" if position else "before its first checkpoint"
    return JobStoppedError(f"The job was preempted (SIGTERM) {saved}.", fix=how_to_resume(run_dir))

"""Libraries that record runs: the detection of their callbacks, and the end of their runs in a worker."""

from __future__ import annotations

import functools
import logging
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from tfdistr.errors import ArgumentError
from tfdistr.utils.describe import describe

log = logging.getLogger("tfdistr")

# TensorBoard's own package has the callback of the HParams plugin.
_LIBRARIES = ("mlflow", "tensorboard", "wandb")


def of_tracker(callback: object) -> bool:
    """Return whether a callback's class, or a class from which it inherits, is one of a tracker's library."""
    return any(kind.__module__.partition(".")[0] in _LIBRARIES for kind in type(callback).__mro__)


def check_not_sent(callbacks: object) -> None:
    """Refuse a tracker's callback that would be sent to the workers: its run would stay here."""
    for callback in callbacks if isinstance(callbacks, list | tuple) else ():
        if of_tracker(callback):
            raise ArgumentError(
                "The callback of a tracker must be created where its run is: in the worker.",
                received=f"{describe(callback)} in the list `callbacks`",
                fix="Pass `callbacks` as a function that starts the run where is_chief() is true, and "
                "returns the callback in a list.",
            )


def end_runs(status: str, seconds: float = 60.0) -> None:
    """End the runs of this process with ``status``: a worker's process skips the libraries' own exit."""
    for library, end_of in (("mlflow", _end_of_mlflow), ("wandb", _end_of_wandb)):
        module = sys.modules.get(library)
        end = end_of(module, status) if module is not None else None
        if end is not None:
            _within(seconds, end, library)


def _within(seconds: float, end: Callable[[], object], library: str) -> None:
    failed: list[str] = [f"it took more than {seconds:g} s"]

    def run() -> None:
        try:
            end()
            failed.clear()
        except Exception as error:  # the training has its result anyway
            failed[:] = [f"{type(error).__name__}: {error}"]

    thread = threading.Thread(target=run, daemon=True)
    # After a failure the launcher sends SIGTERM, and waits a second before it kills.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    thread.start()
    thread.join(seconds)
    signal.signal(signal.SIGTERM, before)
    if failed:
        log.warning("Cannot end the run of %s: %s", library, failed[0])


def _end_of_mlflow(mlflow: Any, status: str) -> Callable[[], object] | None:
    run = mlflow.active_run()  # that of this thread

    def end() -> None:
        mlflow.flush_async_logging()
        mlflow.MlflowClient().set_terminated(run.info.run_id, status)

    return None if run is None else end


def _end_of_wandb(wandb: Any, status: str) -> Callable[[], object] | None:
    return None if wandb.run is None else functools.partial(wandb.finish, exit_code=int(status != "FINISHED"))

"""Libraries that record runs: which callbacks are theirs, and how their runs end in a worker's process."""

from __future__ import annotations

import logging
import sys
from typing import Any

from tfdistr._utils.describe import describe
from tfdistr.errors import ArgumentError

log = logging.getLogger("tfdistr")

# TensorBoard's own package has the callback of the HParams plugin.
_LIBRARIES = ("mlflow", "tensorboard", "wandb")


def of_tracker(callback: Any) -> bool:
    """Whether a callback's class, or a class from which it inherits, is one of a tracker's library."""
    return any(kind.__module__.partition(".")[0] in _LIBRARIES for kind in type(callback).__mro__)


def check_not_sent(callbacks: Any) -> None:
    """Check the callbacks of a job before they are sent to the workers.

    Raises:
        ArgumentError: A callback of a tracker is among them: its run would stay behind.
    """
    for callback in callbacks if isinstance(callbacks, list | tuple) else ():
        if of_tracker(callback):
            raise ArgumentError(
                "The callback of a tracker must be made where its run is: in the worker.",
                received=f"{describe(callback)} in the list `callbacks`",
                fix="Pass `callbacks` as a function that starts the run where is_chief() is true, and returns "
                "the callback in a list.",
            )


def end_runs(status: str) -> None:
    """End the runs that were begun in this process: the process of a worker skips the libraries' own end.

    Args:
        status: "FINISHED", "FAILED", or "KILLED" for a job that was told to end.
    """
    for library, end in (("mlflow", _end_mlflow), ("wandb", _end_wandb)):
        module = sys.modules.get(library)
        if module is None:
            continue
        try:
            end(module, status)
        except Exception as error:  # the training has its result all the same
            log.warning("The run of %s could not be ended: %s: %s", library, type(error).__name__, error)


def _end_mlflow(mlflow: Any, status: str) -> None:
    while mlflow.active_run() is not None:  # runs may be nested
        mlflow.flush_async_logging()
        mlflow.end_run(status)


def _end_wandb(wandb: Any, status: str) -> None:
    if wandb.run is not None:
        wandb.finish(exit_code=int(status != "FINISHED"))

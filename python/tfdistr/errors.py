"""The errors and warnings of tfdistr.

Each message states what failed, then the received value, then the fix. In R the errors are conditions of the
classes ``tfdistr_error_<kind>`` and ``tfdistr_error``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: The message that a failed worker leaves for its peers begins with this text.
PEER_MARK = "tfdistr: failure of"

#: The exit status of a preempted job that has saved a checkpoint (EX_TEMPFAIL of sysexits.h).
STOPPED_STATUS = 75


class TfdistrError(Exception):
    """Base of every error that tfdistr raises on purpose.

    Args:
        message: What failed.
        received: The value that was received; shown after the rule.
        fix: What the user can do; shown last.

    Example:
        >>> print(TfdistrError("`epochs` must be at least 1.", received=0, fix="Pass epochs=1."))
        `epochs` must be at least 1.
        Received: 0
        Fix: Pass epochs=1.
    """

    kind = "error"

    def __init__(self, message: str, *, received: object = None, fix: str | None = None) -> None:
        self.message = message
        self.received = received
        self.fix = fix
        lines = [message]
        if received is not None:
            lines.append(f"Received: {received}")
        if fix is not None:
            lines.append(f"Fix: {fix}")
        super().__init__("\n".join(lines))


class ArgumentError(TfdistrError, ValueError):
    """An argument of a public function is not of the form that the function takes."""

    kind = "argument"


class ClusterConfigError(TfdistrError, ValueError):
    """A TF_CONFIG, or the input for building one, is not valid."""

    kind = "cluster_config"


class ClusterStartError(TfdistrError, RuntimeError):
    """The workers of a cluster could not be started or did not join.

    Attributes:
        worker: Index of a missing worker, if known.
        host: The machine of that worker.
    """

    kind = "cluster_start"
    worker: int | None = None
    host: str | None = None


class DataShardError(TfdistrError, ValueError):
    """A dataset cannot be split over the workers in the requested way."""

    kind = "data_shard"


class JobMismatchError(TfdistrError, ValueError):
    """The workers are about to run different jobs: another model, number of epochs, package version, ..."""

    kind = "job_mismatch"


class CheckpointError(TfdistrError, RuntimeError):
    """A checkpoint is torn or belongs to another run, a run cannot write a file, or its folder is gone."""

    kind = "checkpoint"


class JobStoppedError(TfdistrError, SystemExit):
    """The job was preempted (SIGTERM). It has saved a checkpoint, from which it can resume.

    A script that does not catch the error exits with the status ``STOPPED_STATUS``, 75. This status tells
    schedulers to try again later.
    """

    kind = "job_stopped"

    def __init__(self, message: str, *, received: object = None, fix: str | None = None) -> None:
        super().__init__(message, received=received, fix=fix)
        self.code = STOPPED_STATUS


class NotFiniteError(TfdistrError, ArithmeticError):
    """The loss or the gradients of a step are not finite, and ``on_failure(nan="explain")`` says why."""

    kind = "not_finite"


class StepTimeoutError(TfdistrError, TimeoutError):
    """A worker has made no step for ``step_timeout`` seconds; its peers raise a ``WorkerFailedError``."""

    kind = "step_timeout"


class VersionError(TfdistrError, RuntimeError):
    """Python, TensorFlow, Keras or another package has a version that tfdistr does not work with."""

    kind = "version"


class WorkerFailedError(TfdistrError, RuntimeError):
    """A worker of the job failed; the other workers were stopped.

    Attributes:
        worker: Index of the worker that failed first. If a host was lost, it is the first worker of that
            host. None if another process failed, or if the index is not known.
        host: The machine of the worker, or the machine that lost something; "unknown" if it is not known.
        pid: The process id of the worker.
        exit_code: The exit status of the worker; negative for a signal (-9 is SIGKILL); None if it was alive.
        traceback: The traceback (Python) or call stack (R) of the worker, as text; None if it left none.
        log: Path of the file with the output of the worker.
        workers: The final state of each worker, if a launcher knows it.
    """

    kind = "worker_failed"
    #: The message without Python's frames, for R.
    _in_short: str | None = None

    def __init__(
        self,
        message: str,
        *,
        worker: int | None,
        host: str,
        pid: int | None = None,
        exit_code: int | None = None,
        traceback: str | None = None,
        log: str | None = None,
        fix: str | None = None,
    ) -> None:
        super().__init__(message, fix=fix)
        self.worker = worker
        self.host = host
        self.pid = pid
        self.exit_code = exit_code
        self.traceback = traceback
        self.log = log
        self.workers: Sequence[Any] = []


class TfdistrWarning(UserWarning):
    """A warning for the user of a job. In R it is a warning of the class ``tfdistr_warning``.

    Each warning is shown once, even if several workers have it. If `warnings.simplefilter("error")` makes it
    an error, the job ends, and so do its workers.

    Args:
        message: What the user should know.
        worker: Index of the worker in which user code has warned; None if tfdistr warns.

    Example:
        >>> print(TfdistrWarning("the data has gaps", worker=1))
        Worker 1: the data has gaps
    """

    def __init__(self, message: str, *, worker: int | None = None) -> None:
        self.message = message
        self.worker = worker
        super().__init__(message if worker is None else f"Worker {worker}: {message}")


class BatchLossWarning(TfdistrWarning):
    """A step that several workers cannot make as one worker does.

    A check of the first batch gives it if gradients, variables, metrics or logs differ from those of one
    worker: with a layer that uses several rows of a batch at once, or gradients that a ``train_step`` clips.
    In R it is a warning of the class ``tfdistr_warning_batch_loss``.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=BatchLossWarning)
    """


def how_to_resume(run_dir: object) -> str:
    """Return the fix with which a user continues the preempted job in ``run_dir``."""
    folder = f"run_dir={str(run_dir)!r} and " if run_dir is not None else ""
    return f"Repeat the call with {folder}resume=True."

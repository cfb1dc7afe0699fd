"""The arguments of ``distributed_fit()`` for failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from tfdistr.checkpoint.folder import KEPT
from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import (
    argument,
    check_bool,
    check_choice,
    check_int,
    check_optional_int,
    check_optional_seconds,
)
from tfdistr.utils.describe import call_text, describe


def _check_nan(name: str, value: object) -> str | None:
    return None if value is None else check_choice(name, value, ("explain",))


@attrs.frozen(kw_only=True)
class Recovery:
    """The reaction to failures. `on_failure` describes the first four; `check_recovery` adds the others.

    Attributes:
        every: The interval of checkpoints: a number of steps, or "epoch"; None for no checkpoints.
        keep: How many checkpoints are kept.
        traced: Whether the steps of the job are traced: it has a run directory that stays.
        asked: Whether the user requested checkpoints; otherwise a job that cannot have them runs without.
        resume: Whether the job resumes the run in its run directory.
    """

    max_restarts: int = argument(check_int, "max_restarts", default=0, minimum=0)
    min_workers: int | None = argument(check_optional_int, "min_workers", default=None)
    step_timeout: float | None = argument(check_optional_seconds, "step_timeout", default=None)
    nan: str | None = argument(_check_nan, "nan", default=None)
    every: int | str | None = None
    keep: int = KEPT
    traced: bool = False
    asked: bool = False
    resume: bool = False

    def __str__(self) -> str:
        return call_text("on_failure", self)


def on_failure(
    *,
    max_restarts: int = 0,
    min_workers: int | None = None,
    step_timeout: float | None = None,
    nan: str | None = None,
) -> Recovery:
    """Say what happens when a worker fails or makes no progress.

    Pass it to `distributed_fit` as ``failures``. Without it, the first failure ends the job.

    Args:
        max_restarts: How often to restart all workers of ``cluster`` from the last checkpoint after a worker
            has failed. A restart that led to a newer checkpoint does not count.
        min_workers: The lowest number of workers with which the job may continue after ``max_restarts``
            restarts. It then continues without the failed worker, with the same global batch. None: give up.
        step_timeout: Seconds without a step, of training or validation, after which a worker fails. The error
            shows what its main thread is doing. Callbacks, checkpoints and all work before the first step
            count. None for no limit.
        nan: "explain" ends the job when the loss or the gradients of a step are not finite, at the end of the
            TensorFlow call that saw it. The step is then replayed, and the error names the first tensor that
            was not finite, and the rows that cause it; see ``replay()``. It needs ``run_dir``. None: the
            training continues.

    Returns:
        The reaction, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: An argument does not have this form.

    Example:
        >>> on_failure(max_restarts=3).max_restarts
        3
    """
    return Recovery(**locals())


def as_failures(failures: object) -> Recovery:
    """Return the user's ``failures``."""
    if failures is None:
        return Recovery()
    if not isinstance(failures, Recovery):
        raise ArgumentError(
            "`failures` must be what on_failure() returns.",
            received=describe(failures),
            fix="Pass failures=on_failure(max_restarts=3), for example.",
        )
    return failures


def check_recovery(
    checkpoint_every: object,
    keep_checkpoints: object,
    resume: object,
    failures: Recovery,
    run_dir: object,
    *,
    strategy: str,
    cluster: object,
    shrinking: Sequence[str],
) -> Recovery:
    """Check the recovery arguments of ``distributed_fit()``; ``shrinking`` strategies lose workers."""
    restarts = failures.max_restarts
    resumes = check_bool("resume", resume)
    fewest = _fewest(failures.min_workers, cluster)
    every = _every(checkpoint_every)
    keep = check_int("keep_checkpoints", keep_checkpoints)
    asked = resumes or every is not None or fewest is not None or failures.nan is not None
    if restarts > 0 and cluster is None:
        raise ArgumentError(
            "`max_restarts` needs `cluster`, whose workers can be restarted.",
            received=f"max_restarts={restarts}, and no cluster",
            fix="Pass cluster=local_cluster(workers=2), for example, or leave `max_restarts` out.",
        )
    if not asked and restarts == 0:
        if keep != KEPT:
            raise ArgumentError(
                "`keep_checkpoints` needs checkpoints.",
                received=f"keep_checkpoints={keep}, and no checkpoint_every",
                fix='Pass checkpoint_every="epoch", for example.',
            )
        return failures
    if fewest is not None and strategy not in shrinking:
        raise ArgumentError(
            f"`min_workers` is for the strategies {', '.join(map(repr, shrinking))}.",
            received=f"min_workers={fewest}, and strategy={strategy!r}",
            fix="Leave it out; with `max_restarts` the job restarts all its workers.",
        )
    if run_dir is None and (resumes or failures.nan is not None or cluster is None):
        name = "resume" if resumes else "checkpoint_every" if failures.nan is None else "nan"
        raise ArgumentError(
            f"`{name}` needs `run_dir`, the folder for checkpoints.",
            received="no run_dir",
            fix='Pass run_dir="my_run", the same one each time.',
        )
    return attrs.evolve(
        failures, min_workers=fewest, every=every or "epoch", keep=keep,
        traced=run_dir is not None, asked=asked,
        resume=resumes,
    )  # fmt: skip


def _fewest(wanted: int | None, cluster: Any) -> int | None:
    fewest = wanted or (cluster.fewest if cluster else None)
    if fewest is not None and (cluster is None or fewest > cluster.workers):
        raise ArgumentError(
            "`min_workers` must be at most the number of workers of `cluster`.",
            received=f"min_workers={fewest}, and {cluster.workers if cluster else 'no'} workers",
            fix="Pass cluster=local_cluster(workers=4) and failures=on_failure(min_workers=2), for example.",
        )
    return fewest


def _every(value: Any) -> int | str | None:
    if value is None or value == "epoch":
        return value  # type: ignore[no-any-return]
    if isinstance(value, str):
        raise ArgumentError(
            '`checkpoint_every` must be a number of steps, or "epoch".',
            received=repr(value),
            fix='Pass checkpoint_every="epoch", for example.',
        )
    return check_int("checkpoint_every", value)

"""``replay()``: any step of a run again, in this process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfdistr.checkpoint.folder import Checkpoint, Position
from tfdistr.checkpoint.trace import TracedStep
from tfdistr.checkpoint.variables import other_model
from tfdistr.errors import ArgumentError
from tfdistr.r.values import seed_of_r
from tfdistr.replays.comparison import ROUNDING, first_difference, first_that, largest_difference
from tfdistr.replays.explain import explain
from tfdistr.replays.job_of_run import callbacks_of, check_callbacks, check_emulation, job_of, strategy_of
from tfdistr.replays.kept_run import KeptRun, open_kept
from tfdistr.replays.rerun import Rerun, rerun
from tfdistr.replays.result import Replay, Table
from tfdistr.replays.tables import example_losses, gradients_of, updates_of
from tfdistr.strategies.exact.loss_weighting import count_examples
from tfdistr.strategies.virtual.rounding import describe_kernels
from tfdistr.utils.interrupts import defer_sigint

if TYPE_CHECKING:
    import keras

log = logging.getLogger("tfdistr")

#: The message of the error that the model, or the checkpoint, is another one.
OTHER_MODEL = "The model of a replay must be that of the run."


def replay(
    run: str | os.PathLike[str],
    step: int | str,
    model: Callable[[], keras.Model],
    x: object,
    y: object = None,
    *,
    sample_weight: object = None,
    validation_data: object = None,
    callbacks: object = None,
) -> Replay:
    """Make any step of a run again.

    The result shows its rows, losses, gradients and updates. The run must have been trained by
    ``distributed_fit()`` with checkpoints in ``run_dir``. The training starts again in this process at the
    nearest checkpoint before the step, or at its start, with the seed, the batches and the virtual workers of
    the run. The steps that are made again are compared with the trace of the run. With ``virtual_workers``,
    and for runs on one worker, they are bitwise identical on the same kind of processor. The rows of several
    workers without ``virtual_workers`` are computed as shares, which differ by rounding.

    Nothing of the run is executed: the model, the data and the callbacks are yours. Nothing is written.

    Args:
        run: The folder or the URL of the run: its ``run_dir``.
        step: The number of the step, counted from 1 over all epochs. Or "nan" for the first step whose loss
            or gradients are not finite, or the step before, if its update has made the weights so: ``cause``
            then names the first tensor that was not finite.
        model: The model function of the run.
        x: The data of the run, as for ``distributed_fit()``.
        y: Targets, if ``x`` is arrays.
        sample_weight: Weights of the examples, if the run had them.
        validation_data: The validation data of the run. Callbacks that decide by it need it.
        callbacks: The callbacks of the run, as for ``distributed_fit()``. Those that write, trackers, and
            those marked by ``chief_only()`` do not run.

    Returns:
        A ``Replay``. Printing it shows the step in a few lines.

    Raises:
        ArgumentError: ``run`` has no checkpoints or no such step; the data, the model, the callbacks or the
            version of Keras are not those of the run; or one process cannot make its steps again: parameter
            servers, several devices in one process, a model with its own ``fit()``, NCCL, layers that draw
            random numbers on several workers without ``virtual_workers``, ``tf.random``.

    Warns:
        TfdistrWarning: The steps differ from the trace by more than rounding, or callbacks of your own
            classes run.

    Example:
        >>> fit = tfdistr.distributed_fit(
        ...     model, tfdistr.load_dataset("digits"), run_dir="my_run", checkpoint_every="epoch", seed=1)
        >>> again = tfdistr.replay("my_run", 30, model, tfdistr.load_dataset("digits"))
        >>> again.difference
        0.0
        >>> len(again.rows)
        32
    """
    given = dict(locals())
    step = given.pop("step")
    with open_kept(given.pop("run")) as kept:
        return replay_step(RunAgain(kept, given), step)


def no_r(seed: int) -> None:
    """Seed nothing: R does not run."""


@dataclass(frozen=True)
class RunAgain:
    """A run, and what its user gives to make its steps again.

    Attributes:
        given: ``model``, ``x``, ``y``, ``sample_weight``, ``validation_data`` and ``callbacks``.
        on_seed: Sets the seed of R.
    """

    kept: KeptRun
    given: dict[str, Any]
    on_seed: Callable[[int], object] = no_r

    def replay(self, step: int) -> Replay:
        """Make a step again."""
        return result_of(self.kept, step, self.remake(step))

    def remake(self, step: int) -> Rerun:
        """Make a step again from the checkpoint before it. Warn if the steps are not those of the trace."""
        made = self.rerun(step, self.kept.checkpoints.before(step))
        _warn_of_difference(self.kept, made)
        return made

    def rerun(self, step: int, checkpoint: Checkpoint | None, end: Position | None = None) -> Rerun:
        """Make the steps from a checkpoint to ``step`` again; see ``rerun()``."""
        kept = self.kept
        job, strategy = job_of(kept, step, **self.given), strategy_of(kept, step)

        def check(model: keras.Model, states: Sequence[str]) -> None:
            check_emulation(model, strategy, kept.shares(step))
            check_callbacks(job, states)

        callbacks = callbacks_of(job)
        defer_sigint(self.on_seed)(seed_of_r(job.seed))
        try:
            return rerun(job, strategy, kept.checkpoints, checkpoint, step, callbacks, check, end)
        except ArgumentError as error:
            if error.message != other_model("").message:
                raise
            raise ArgumentError(
                OTHER_MODEL,
                received=str(error.received),
                fix="Pass the `model` function with which the run was trained.",
            ) from error


def replay_step(run: RunAgain, step: int | str) -> Replay:
    """Make a step again. For "nan", it may be an earlier one: its update has made weights not finite."""
    number = run.kept.check_step(step)
    found = run.replay(number)
    first = min(run.kept.trace.steps)
    of_weights = found.cause is not None and found.cause.where == "weights"
    if step != "nan" or not of_weights or number == first:
        return found

    def is_odd(earlier: int) -> bool:
        nonlocal found
        made = run.replay(earlier)
        if made.cause is not None:
            found = made
        return found is made

    number = first_that(is_odd, first, number - 1)
    return found if found.step == number else run.replay(number)


def _warn_of_difference(run: KeptRun, made: Rerun) -> None:
    first = first_difference({step.step: step for step in made.steps}, run.trace.steps, ROUNDING)
    if first is not None:
        start = run.trace.start_of(first)
        kernels = "" if start["kernels"] == describe_kernels() else f", the processor ({start['kernels']})"
        log.warning(
            "The replay differs from the run since step %d, by %.3g: the model function, the data, the "
            "callbacks%s or the versions of packages are not those of the run.",
            first, largest_difference(made.steps, run.trace.steps), kernels,
        )  # fmt: skip


def result_of(run: KeptRun, number: int, made: Rerun) -> Replay:
    """Return the result of a step that was made again."""
    last = made.steps[-1]
    losses = example_losses(made, run.shares(number))
    count = int(count_examples(made.batch)) if made.indices is None else len(made.indices)
    rows = [
        {
            "row": row,
            "index": None if made.indices is None else int(made.indices[row]),
            **_of_file(made, row),
            "loss": None if losses is None else losses[row],
        }
        for row in range(count)
    ]
    return Replay(
        run=run.place, step=number,
        difference=largest_difference(made.steps, run.trace.steps), steps=_steps(run, made), rows=rows,
        gradients=gradients_of(made), updates=updates_of(made),
        inputs=tf.nest.map_structure(_in_numpy, made.batch), weights_before=made.weights(made.before),
        weights_after=made.weights(made.after),
        cause=None if last.is_finite and made.is_finite else explain(run.trace, made),
    )  # fmt: skip


def _of_file(made: Rerun, row: int) -> dict[str, Any]:
    """Return the file of a row and its number there; nothing if the data is not of files."""
    return dict(zip(("file", "row_of_file"), made.places[row], strict=True)) if made.places else {}


def _in_numpy(part: object) -> Any:
    return np.asarray(part) if isinstance(part, tf.Tensor) else part


def _steps(run: KeptRun, made: Rerun) -> Table:
    before = run.trace.before(made.steps[0].step)
    return [_row(step, again=False) for step in before] + [_row(step, again=True) for step in made.steps]


def _row(step: TracedStep, *, again: bool) -> dict[str, Any]:
    return {
        "step": step.step, "epoch": step.epoch, "loss": step.loss,
        "norm": step.norm, "learning_rate": step.rate, "skipped": step.skipped, "again": again,
    }  # fmt: skip

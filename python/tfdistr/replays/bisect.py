"""``bisect()``: the first step in which two runs differ, and the reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np

from tfdistr.errors import ArgumentError
from tfdistr.replays.comparison import ROUNDING, difference, first_difference, relative
from tfdistr.replays.kept_run import KeptRun, open_kept
from tfdistr.replays.replay import no_r, replay_of
from tfdistr.replays.result import Replay
from tfdistr.utils.arguments import check_fraction


@dataclass(frozen=True)
class Bisection:
    """The first step in which two runs differ, and the likely reason.

    Attributes:
        run_a: The folder or the URL of the first run.
        run_b: That of the second run.
        step: The first step whose numbers differ by more than ``tolerance``; None if there is none.
        compared: Number of steps that both traces have.
        tolerance: The relative difference that was allowed.
        difference: The relative difference in this step; 0 if there is no such step.
        differences: The settings, the data, versions, processors and numbers of workers that differ, by name:
            the value of the first run, and that of the second.
        confirmed: Whether the replays give the numbers of the traces: of the first run, and of the second;
            None without a replay.
        tensor: The first tensor of the step that differs between the replays; None if none does.
        by: The largest relative difference of this tensor.
        reason: The likely reason: "settings", "data", "learning rate", "weights", "gradients", "update",
            "kernel", "code" or "random numbers"; None if no step differs.
    """

    run_a: str
    run_b: str
    step: int | None
    compared: int
    tolerance: float
    difference: float = 0.0
    differences: dict[str, tuple[Any, Any]] | None = None
    confirmed: tuple[bool, bool] | None = None
    tensor: str | None = None
    by: float = 0.0
    reason: str | None = None

    def __str__(self) -> str:
        """The finding in a few lines."""
        runs = f"{self.run_a} and {self.run_b}"
        if self.step is None:
            return f"{runs} agree in all {self.compared} steps that both have (tolerance {self.tolerance:g})."
        lines = [
            f"{runs} differ first in step {self.step}, by {self.difference:.3g} (tolerance "
            f"{self.tolerance:g})."
        ]
        for name, (one, other) in (self.differences or {}).items():
            lines.append(f"  {name}: {one!r} and {other!r}")
        if self.confirmed is not None:
            one, other = ("gives" if each else "does not give" for each in self.confirmed)
            lines.append(f"  A replay of the first run {one} its numbers, one of the second {other} its own.")
        if self.tensor is not None:
            lines.append(f"  First tensor that differs: {self.tensor}, by {self.by:.3g}")
        return "\n".join([*lines, f"  Likely reason: {self.reason}"])

    __repr__ = __str__


def bisect(
    run_a: str | os.PathLike[str],
    run_b: str | os.PathLike[str],
    model: Callable[[], keras.Model] | None = None,
    x: object = None,
    y: object = None,
    *,
    sample_weight: object = None,
    validation_data: object = None,
    callbacks: object = None,
    model_b: Callable[[], keras.Model] | None = None,
    x_b: object = None,
    y_b: object = None,
    tolerance: float | None = None,
) -> Bisection:
    """Find the first step in which two runs differ.

    For two runs that should be the same. Their traces are compared. With ``model`` and ``x``, the first step
    that differs is replayed from the checkpoints of both runs, and the replays are compared: rows, weights,
    gradients, updates.

    Args:
        run_a: The folder or the URL of a run, as for ``replay()``.
        run_b: Those of the other run: of another machine, version, number of workers, or other code.
        model: The model function of the runs. Without it, no step is replayed.
        x: The data of the runs.
        y: Targets, if ``x`` is arrays.
        sample_weight: Weights of the examples, if the runs had them.
        validation_data: The validation data of the runs. Callbacks that decide by it need it.
        callbacks: The callbacks of the runs.
        model_b: The model function of the other run, if it is another one.
        x_b: The data of the other run, if it is other data.
        y_b: Its targets.
        tolerance: The relative difference of losses, gradient norms and learning rates that is allowed. By
            default 0 for runs with the same ``virtual_workers``, or on one worker, on the same kind of
            processor, and 0.001 for others, whose sums are rounded differently.

    Returns:
        A ``Bisection``. Printing it shows the finding in a few lines.

    Raises:
        ArgumentError: A run has no checkpoints, the runs have no step in common, or a replay is not possible;
            see ``replay()``.

    Example:
        >>> for folder in ("run_a", "run_b"):
        ...     fit = tfdistr.distributed_fit(model, tfdistr.load_dataset("digits"), run_dir=folder,
        ...                                   checkpoint_every="epoch", seed=1)
        >>> tfdistr.bisect("run_a", "run_b").step is None
        True
    """
    with open_kept(run_a) as a, open_kept(run_b) as b:
        return bisect_kept(
            a, b, model=model, x=x, y=y, sample_weight=sample_weight, validation_data=validation_data,
            callbacks=callbacks, model_b=model_b, x_b=x_b, y_b=y_b, tolerance=tolerance,
        )  # fmt: skip


def bisect_kept(
    a: KeptRun,
    b: KeptRun,
    on_seed: Callable[[int], object] = no_r,
    *,
    model: object,
    x: object,
    y: object,
    model_b: object,
    x_b: object,
    y_b: object,
    tolerance: float | None,
    **again: object,
) -> Bisection:
    """Compare two opened runs; ``on_seed`` sets the seed of R."""
    allowed = _tolerance(a, b) if tolerance is None else check_fraction("tolerance", tolerance)
    common = sorted(set(a.trace.steps) & set(b.trace.steps))
    if not common:
        raise ArgumentError(
            "The runs must have a step in common.",
            received=f"{a.place} from step {min(a.trace.steps)} on, and {b.place} from step "
            f"{min(b.trace.steps)} on",
            fix="Pass two runs of the same training.",
        )
    step = first_difference(a.trace.steps, b.trace.steps, allowed)
    if step is None:
        return Bisection(a.place, b.place, None, len(common), allowed)
    by = difference(a.trace.steps[step], b.trace.steps[step])
    known = Bisection(a.place, b.place, step, len(common), allowed, by, _differences(a, b, step))
    if model is None:
        return replace(known, reason=_by_numbers(a, b, known))
    one = replay_of(a, step, model, on_seed, x=x, y=y, **again)
    if x_b is None and y_b is None:
        y_b = y
    other_x = x if x_b is None else x_b
    other = replay_of(b, step, model_b or model, on_seed, x=other_x, y=y_b, **again)
    return _compared(a, b, known, one, other, model_b is not None)


def _exactly(run: KeptRun) -> Any:
    """Return what must be the same for the same bits; None if they depend on the number of workers."""
    workers = {start["workers"] for start in run.trace.starts}
    return run.job["virtual_workers"] or ("one worker" if workers == {1} else None)


def _tolerance(a: KeptRun, b: KeptRun) -> float:
    kernels = {start["kernels"] for run in (a, b) for start in run.trace.starts}
    same = _exactly(a) is not None and _exactly(a) == _exactly(b) and len(kernels) == 1
    return 0.0 if same else ROUNDING


def _differences(a: KeptRun, b: KeptRun, step: int) -> dict[str, tuple[Any, Any]]:
    """Return what differs between the descriptions of two runs."""
    known = []
    for run in (a, b):
        start = run.trace.start_of(step)
        job = {name: value for name, value in run.job.items() if name not in ("workers", "options")}
        known.append({**job, **start["versions"], **{name: start[name] for name in _COMPARED}})
    one, other = known
    return {name: (one[name], other.get(name)) for name in one if one[name] != other.get(name)}


_COMPARED = ("workers", "optimizers", "data", "kernels")
#: Differences of two runs that their user has made.
_NOT_SETTINGS = ("workers", "data", "examples", "kernels")


def _settings(found: Bisection) -> list[str]:
    versions = [name for name in found.differences or {} if name.startswith("version")]
    return [name for name in found.differences or {} if name not in (*_NOT_SETTINGS, *versions)]


def _by_numbers(a: KeptRun, b: KeptRun, found: Bisection) -> str:
    """Return the likely reason, from the traces alone."""
    assert found.step is not None
    one, other = (run.trace.steps[found.step] for run in (a, b))
    if _settings(found):
        return "settings"
    if {"data", "examples"} & set(found.differences or {}):
        return "data"
    if one.rates != other.rates:
        return "learning rate"
    if relative(one.loss, other.loss) > found.tolerance:
        first = found.step == min(set(a.trace.steps) & set(b.trace.steps))
        return "weights" if first else "update"
    return "gradients"


def _compared(
    a: KeptRun, b: KeptRun, found: Bisection, one: Replay, other: Replay, other_code: bool
) -> Bisection:
    """Add what the replays show."""
    allowed = max(found.tolerance, ROUNDING if _exactly(a) is None or _exactly(b) is None else 0.0)
    confirmed = (one.difference <= allowed, other.difference <= allowed)
    parts = ((what, name, by) for what, name, by in _parts(one, other) if by > found.tolerance)
    what, tensor, by = next(parts, (None, None, 0.0))
    reason = what or "random numbers"
    if _settings(found):
        reason = "settings"
    elif not all(confirmed):
        reason = "kernel" if "kernels" in (found.differences or {}) else "code"
    elif what in ("gradients", "update") and other_code:
        reason = "code"
    return replace(found, confirmed=confirmed, tensor=tensor, by=by, reason=reason)


def _parts(one: Replay, other: Replay) -> Iterator[tuple[str, str, float]]:
    """Yield the tensors of two replays in the order of the step, with their differences."""
    inputs = zip(keras.tree.flatten(one.inputs), keras.tree.flatten(other.inputs), strict=False)
    for number, (left, right) in enumerate(inputs):
        yield "data", f"the rows of part {number} of the batch", _by(left, right)
    for left, right in zip(one.weights_before.items(), other.weights_before.items(), strict=False):
        yield "weights", f"{left[0]} before the step", _by(left[1], right[1])
    rates = [[row["learning_rate"] for row in each.steps][-1] for each in (one, other)]
    yield "learning rate", "the learning rate", relative(*rates)
    for left, right in zip(reversed(one.gradients), reversed(other.gradients), strict=False):
        by = relative(left["norm"], right["norm"])
        yield "gradients", f"the gradient of {left['layer']}/{left['weight']}", by
    for left, right in zip(one.weights_after.items(), other.weights_after.items(), strict=False):
        yield "update", f"{left[0]} after the step", _by(left[1], right[1])


def _by(one: object, other: object) -> float:
    """Return the largest difference of two arrays, relative to their largest finite number.

    It is infinite if only one of them is finite somewhere.
    """
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        return np.inf
    if one.dtype.kind not in "fiub":
        return float((one != other).any())
    one, other = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(one) & np.isfinite(other)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return np.inf
    one, other = one[finite], other[finite]
    size = max(np.max(np.abs(one), initial=0.0), np.max(np.abs(other), initial=0.0)) or 1.0
    return float(np.max(np.abs(one - other), initial=0.0) / size)

"""``bisect()``: the first step in which two runs differ, and the reason."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import keras

from tfdistr.checkpoint.chain import is_first, read_chain
from tfdistr.errors import ArgumentError
from tfdistr.replays.comparison import (
    ROUNDING,
    difference,
    first_difference,
    first_that,
    of_numbers,
    relative,
)
from tfdistr.replays.explain import of_rows
from tfdistr.replays.kept_run import KeptRun, open_kept
from tfdistr.replays.replay import RunAgain, no_r
from tfdistr.replays.result import Replay
from tfdistr.replays.step_tensors import (
    Part,
    StepAgain,
    most_changed,
    parts,
    same_shapes,
    same_uncompiled,
    same_weights,
    step_again,
)
from tfdistr.strategies.exact.batch_check import OWN_CHANGES, SEVERAL_ROWS, SUM
from tfdistr.strategies.noted_layers import DRAWS, NORMALIZES, SAME
from tfdistr.utils.arguments import check_fraction

#: The rows of docs/exact.md for known differences, by a part of their sentences.
EXACT = {
    NORMALIZES: "`BatchNormalization()`",
    DRAWS: "`Dropout`, noise, augmentation",
    SAME: "random operations that use TensorFlow's global seed",
    SEVERAL_ROWS: "layers that use several rows at once",
    OWN_CHANGES: "variables that a step changes",
    SUM: "losses that are sums over the rows",
}


@dataclass(frozen=True)
class Bisection:
    """The first step in which two runs differ, and the likely reason.

    Attributes:
        runs: The folders or the URLs of the two runs.
        step: The first step whose numbers differ by more than ``tolerance``, or whose tensors do; None if
            there is none.
        compared: Number of steps that both traces have.
        tolerance: The relative difference that was allowed.
        difference: The relative difference of the numbers of the first step that shows one; 0 if none does.
        differences: The settings, the data, versions, processors and numbers of workers that differ, by name:
            the value of the first run, and that of the second. "differences" are the known ones from the
            result of one worker, such as layers that draw random numbers.
        confirmed: Whether the replays give the numbers of the traces: of the first run, and of the second;
            None without a replay.
        tensor: The first tensor of the step that differs between the replays; None if none does.
        by: The largest relative difference of this tensor.
        rows: The rows of the batch that differ, from 0; None if the rows are the same.
        indices: The indices of these rows in the data of the first run; None if the data has none.
        reason: The likely reason: "settings", "data", "workers", "learning rate", "weights", "gradients",
            "update", "kernel", "code" or "random numbers"; None if no step differs. "workers" means the
            known differences from one worker, which need no replay.
    """

    runs: tuple[str, str]
    step: int | None
    compared: int
    tolerance: float
    difference: float = 0.0
    differences: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    confirmed: tuple[bool, bool] | None = None
    tensor: str | None = None
    by: float = 0.0
    rows: list[int] | None = None
    indices: list[int] | None = None
    reason: str | None = None

    def __str__(self) -> str:
        """The finding in a few lines."""
        runs = " and ".join(self.runs)
        if self.step is None:
            return f"{runs} agree in all {self.compared} steps that both have (tolerance {self.tolerance:g})."
        lines = [
            f"{runs} differ first in step {self.step}, by {self.difference:.3g} (tolerance "
            f"{self.tolerance:g})."
        ]
        for name, (one, other) in self.differences.items():
            lines.append(f"  {name}: {one!r} and {other!r}")
        known = str(self.differences.get("differences", ""))
        rows = [row for part, row in EXACT.items() if part in known]
        lines += [f'  See "Differences from one worker" in docs/exact.md: {", ".join(rows)}'] if rows else []
        if self.confirmed is not None:
            one, other = ("gives" if each else "does not give" for each in self.confirmed)
            lines.append(f"  A replay of the first run {one} its numbers, one of the second {other} its own.")
        if self.tensor is not None:
            lines.append(f"  First tensor that differs: {self.tensor}, by {self.by:.3g}")
        if self.rows:
            lines.append(f"  Rows that differ: {of_rows(self.rows, self.indices)}")
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
    callbacks_b: object = None,
    tolerance: float | None = None,
) -> Bisection:
    """Find the first step in which two runs differ.

    For two runs that should be the same. Their traces are compared. With ``model`` and ``x``, the first step
    that differs is replayed from the checkpoints of both runs, and the replays are compared: rows, weights,
    outputs of layers, gradients, updates. If no number differs and ``tolerance`` is 0, the last step is.

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
        callbacks_b: The callbacks of the other run, if they are others.
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
    given = dict(locals())
    with open_kept(given.pop("run_a")) as a, open_kept(given.pop("run_b")) as b:
        return bisect_kept(a, b, **given)


def bisect_kept(
    a: KeptRun,
    b: KeptRun,
    on_seed: Callable[[int], object] = no_r,
    *,
    model: object,
    x: object,
    y: object,
    callbacks: object,
    model_b: object,
    x_b: object,
    y_b: object,
    callbacks_b: object,
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
    shown = first_difference(a.trace.steps, b.trace.steps, allowed)
    agreeing = Bisection((a.place, b.place), None, len(common), allowed)
    if shown is None and (model is None or allowed > 0.0):
        return agreeing
    step = common[-1] if shown is None else shown  # weights may differ though no number shows it
    by = difference(a.trace.steps[step], b.trace.steps[step])
    known = Bisection((a.place, b.place), step, len(common), allowed, by, _differences(a, b, step))
    by_numbers = _by_numbers(a, b, known, step)
    if model is None or by_numbers == "workers":  # a known difference needs no replay
        return replace(known, reason=by_numbers)
    if x_b is None and y_b is None:
        y_b = y
    one = RunAgain(a, {"model": model, "x": x, "y": y, "callbacks": callbacks, **again}, on_seed)
    other = RunAgain(b, {
        "model": model_b or model, "x": x if x_b is None else x_b, "y": y_b,
        "callbacks": callbacks if callbacks_b is None else callbacks_b, **again,
    }, on_seed)  # fmt: skip
    found = _compared(known, step, one, other)
    if shown is None and found.tensor is None:
        return agreeing
    if found.reason != "weights" or found.confirmed != (True, True):
        return found
    return _earlier(found, step, one, other)


def _earlier(found: Bisection, last: int, a: RunAgain, b: RunAgain) -> Bisection:
    """Find the step after which weights differ, which the numbers of its trace may not show, by halving."""
    first = max(_first_kept(a.kept), _first_kept(b.kept))

    def weights_differ(step: int) -> bool:
        return not same_weights(a.replay(step), b.replay(step), found.tolerance)

    if first >= last:
        return found
    apart = first_that(weights_differ, first, last)
    for step in dict.fromkeys((max(first, apart - 1), apart)):
        made = _compared(found, step, a, b)
        if made.tensor is not None:
            return made
    return found


def _first_kept(run: KeptRun) -> int:
    """Return the first step with a kept state before it: to make the steps before again takes long."""
    kept, _ = read_chain(run.checkpoints)
    if kept and not is_first(kept[0]):
        return kept[0].total + 1
    return min(run.trace.steps)


def _with_changed_weight(found: Bisection, run: RunAgain, made: Replay) -> Bisection:
    """Name the weight that was changed, if the step that does not repeat has a checkpoint after it."""
    following = made.step + 1
    kept = run.kept.checkpoints.before(following)
    if following not in run.kept.trace.steps or kept is None or kept.total != made.step:
        return found
    part = most_changed(made.weights_after, run.replay(following).weights_before)
    return replace(found, tensor=part.name, by=part.by) if part.by else found


def _tolerance(a: KeptRun, b: KeptRun) -> float:
    kernels = {start["kernels"] for run in (a, b) for start in run.trace.starts}
    same = a.exactly is not None and a.exactly == b.exactly and len(kernels) == 1
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


_COMPARED = ("workers", "differences", "optimizers", "data", "kernels")
#: Differences of two runs that their user has made.
_NOT_SETTINGS = ("workers", "differences", "data", "examples", "kernels")


def _settings(found: Bisection) -> list[str]:
    names = (name for name in found.differences if not name.startswith("version"))
    return [name for name in names if name not in _NOT_SETTINGS]


def _by_numbers(a: KeptRun, b: KeptRun, found: Bisection, step: int) -> str:
    """Return the likely reason, from the traces alone."""
    one, other = (run.trace.steps[step] for run in (a, b))
    if _settings(found):
        return "settings"
    if {"data", "examples"} & found.differences.keys():
        return "data"
    if {"workers", "differences"} <= found.differences.keys():
        return "workers"
    if one.rates != other.rates:
        return "learning rate"
    if relative(one.loss, other.loss) > found.tolerance:
        first = step == min(set(a.trace.steps) & set(b.trace.steps))
        return "weights" if first else "update"
    return "gradients"


def _compared(found: Bisection, step: int, a: RunAgain, b: RunAgain) -> Bisection:
    """Add what replays of a step show."""
    one, other = step_again(a, step), step_again(b, step)
    allowed = max(found.tolerance, 0.0 if a.kept.exactly and b.kept.exactly else ROUNDING)
    confirmed = (one.replay.difference <= allowed, other.replay.difference <= allowed)
    part = next((part for part in parts(one, other) if part.by > found.tolerance), Part("", "", 0.0))
    indices = [one.replay.rows[row]["index"] for row in part.rows or []]
    found = replace(
        found, step=step, confirmed=confirmed, tensor=part.name or None, by=part.by, rows=part.rows,
        indices=None if None in indices or not indices else indices,
    )  # fmt: skip
    if _settings(found):
        return replace(found, reason="settings")
    if not all(confirmed):
        run, made = (a, one) if confirmed[1] else (b, other)
        found = replace(found, reason=_unrepeated(run, found, made, allowed))
        return _with_changed_weight(found, run, made.replay) if any(confirmed) else found
    reason = part.what or "random numbers"
    if part.what == "outputs":
        reason = "random numbers" if part.layer in one.random & other.random else "code"
    elif part.what in ("gradients", "update") and a.given["model"] is not b.given["model"]:
        reason = "kernel" if same_uncompiled(one, other) and part.by <= ROUNDING else "code"
    elif part.what == "weights" and not same_shapes(one, other):
        reason = "code"
    return replace(found, reason=reason)


def _unrepeated(run: RunAgain, found: Bisection, made: StepAgain, allowed: float) -> str:
    """Return the likely reason if a run does not repeat: what differs first in its own step."""
    traced, again = run.kept.trace.steps[made.replay.step], made.traced
    if "kernels" in found.differences:
        return "kernel"
    if of_numbers(traced.rates, again.rates) > allowed:
        return "learning rate"
    if not _repeats_later(run, made.replay.step, allowed):
        return "code"
    return "weights" if relative(traced.loss, again.loss) > allowed else "gradients"


def _repeats_later(run: RunAgain, step: int, allowed: float) -> bool:
    """Return whether a run repeats from a checkpoint after a step, which was then disturbed once.

    Without such a checkpoint, a step within a training was: other code would have differed before.
    """
    last = max(run.kept.trace.steps)
    kept = run.kept.checkpoints.before(last)
    if kept is None or kept.total < step:
        return step - 1 not in {start["step"] for start in run.kept.trace.starts}
    return run.replay(last).difference <= allowed

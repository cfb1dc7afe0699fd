"""``verify()``: the check of a run's kept files, by training parts of it again."""

from __future__ import annotations

import math
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdistr import tf_internals
from tfdistr.checkpoint.chain import is_first, read_chain
from tfdistr.checkpoint.folder import Checkpoint, read
from tfdistr.checkpoint.variables import parts_of
from tfdistr.errors import ArgumentError
from tfdistr.replays.comparison import ROUNDING, array_difference, difference
from tfdistr.replays.job_of_run import OTHER_DATA
from tfdistr.replays.kept_run import KeptRun, open_kept
from tfdistr.replays.replay import OTHER_MODEL, RunAgain
from tfdistr.replays.rerun import Rerun
from tfdistr.strategies.virtual.rounding import describe_kernels
from tfdistr.utils.arguments import as_number, check_fraction, check_optional_int

if TYPE_CHECKING:
    import keras

_SHOWN = 5


@dataclass(frozen=True)
class Interval:
    """The steps of a run from one kept checkpoint to the next.

    Attributes:
        first_step: The first step after the checkpoint before, or of the training.
        last_step: The step after which the next checkpoint was saved.
        recomputed: Whether the steps were made again.
        agrees: Whether they give the numbers of the trace and the next checkpoint; None if nobody has looked.
        difference: The largest relative difference of losses, gradient norms, learning rates, weights,
            optimizer states and states of random numbers; infinite if one is missing.
        step: The first step that differs; None if none does.
        reason: Why the steps could not be made again; None if they were, or if nobody has looked.
    """

    first_step: int
    last_step: int
    recomputed: bool = False
    agrees: bool | None = None
    difference: float | None = None
    step: int | None = None
    reason: str | None = None

    def __str__(self) -> str:
        """The finding in a line."""
        steps = f"steps {self.first_step} to {self.last_step}"
        if self.reason is not None:
            return f"{steps} cannot be those of the run: {self.reason}"
        if self.step is None:
            return f"{steps} {'agree' if self.agrees else 'were not recomputed'}"
        return f"{steps} differ, first in step {self.step}, by up to {self.difference:.3g}"


@dataclass(frozen=True)
class Verification:
    """The findings of a check of a run.

    Attributes:
        run: The folder or the URL of the run.
        steps: The first and the last step of its trace.
        checkpoints: The steps after which the whole checkpoints were saved.
        chain: What does not chain, in words: checkpoints that are damaged or do not follow the one before, a
            trace or a description of the job that was changed. Empty if all is whole.
        intervals: The steps between the checkpoints.
        tolerance: The relative difference that was allowed.
    """

    run: str
    steps: tuple[int, int]
    checkpoints: list[int]
    chain: list[str]
    intervals: list[Interval]
    tolerance: float

    @property
    def agrees(self) -> bool:
        """The verdict: True if the checkpoints chain, and all intervals that were recomputed agree."""
        return not self.chain and all(each.agrees is not False for each in self.intervals)

    def __str__(self) -> str:
        """The findings in a few lines."""
        made = sum(each.recomputed for each in self.intervals)
        lines = [
            f"{self.run} {'agrees' if self.agrees else 'does not agree'} with its training: {made} of "
            f"{len(self.intervals)} intervals recomputed (tolerance {self.tolerance:g}).",
            *_first(list(self.chain)),
            *_first([str(each) for each in self.intervals if each.agrees is False]),
            *_first([str(each) for each in self.intervals if each.agrees]),
            *(f"steps {first} to {last} have no checkpoints to compare" for first, last in self._open()),
            "This is no proof against somebody who owns all files and can compute their hashes again.",
        ]
        return "\n  ".join(lines)

    __repr__ = __str__

    def _open(self) -> Iterator[tuple[int, int]]:
        """Yield the steps of the trace before the first interval, and after the last one."""
        (first, last), known = self.steps, self.intervals
        begin, end = (known[0].first_step, known[-1].last_step) if known else (last + 1, last)
        if first < begin:
            yield first, begin - 1
        if end < last:
            yield end + 1, last


def _first(lines: Sequence[str]) -> list[str]:
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return [*lines[:_SHOWN], *more]


def verify(
    run: str | os.PathLike[str],
    model: Callable[[], keras.Model],
    x: object,
    y: object = None,
    *,
    sample_weight: object = None,
    validation_data: object = None,
    callbacks: object = None,
    share: float = 1.0,
    seed: int | None = None,
    tolerance: float | None = None,
) -> Verification:
    """Check that the kept files of a run are those of its training.

    Each checkpoint has the hashes of the one before, of the trace and of the job: a file that was changed or
    exchanged afterwards does not chain. The steps between two kept checkpoints are made again in this
    process, as ``replay()`` makes them, and compared: each step with the trace, and the weights, the state
    of the optimizers and the states of random numbers with the next checkpoint. The steps before the first
    checkpoint count if it is the first one of the run.

    It is no proof against somebody who owns all files and can compute their hashes again, and it checks
    only the steps between checkpoints that are kept: ``keep_checkpoints`` says how many. Of those that were
    removed, the later ones have the hash.

    Args:
        run: The folder or the URL of the run, as for ``replay()``.
        model: The model function of the run.
        x: The data of the run.
        y: Targets, if ``x`` is arrays.
        sample_weight: Weights of the examples, if the run had them.
        validation_data: The validation data of the run. Callbacks that decide by it need it.
        callbacks: The callbacks of the run. Those that write do not run.
        share: The share of the intervals to recompute, above 0 and up to 1. The last one is always among
            them, because no later checkpoint has its hash; the others are drawn.
        seed: The seed of the draw; None for another draw each time, which nobody can foresee.
        tolerance: The relative difference that is allowed. By default 0 for runs with ``virtual_workers``
            or on one worker if this machine has the same kind of processor, and otherwise 0.001.

    Returns:
        A ``Verification``. Printing it shows the findings in a few lines.

    Raises:
        ArgumentError: The run has too few checkpoints, or one process cannot make its steps again; see
            ``replay()``. Other data and another model are findings.

    Example:
        >>> fit = tfdistr.distributed_fit(model, tfdistr.load_dataset("digits"), run_dir="my_run",
        ...                               checkpoint_every="epoch", epochs=2, seed=1)
        >>> tfdistr.verify("my_run", model, tfdistr.load_dataset("digits")).agrees
        True
    """
    given = dict(locals())
    options = {name: given.pop(name) for name in ("share", "seed", "tolerance")}
    with open_kept(given.pop("run")) as kept:
        return verify_kept(RunAgain(kept, given), **options)


def verify_kept(again: RunAgain, *, share: object, seed: object, tolerance: float | None) -> Verification:
    """Check an opened run."""
    run = again.kept
    part = _share(share)
    draw = random.Random(check_optional_int("seed", seed, minimum=0))
    allowed = None if tolerance is None else check_fraction("tolerance", tolerance)
    found, broken = read_chain(run.checkpoints)
    broken = [*run.refused, *broken]
    pairs = list(zip([None, *found], found, strict=False))
    if found and not is_first(found[0]):
        pairs = pairs[1:]  # nobody knows the steps before it without training all of them
    if not pairs and not broken:
        raise ArgumentError(
            "A run can be checked if two of its checkpoints are kept.",
            received=f"{run.place} with {len(found)}",
            fix='Train with checkpoint_every="epoch" and keep_checkpoints=10, for example.',
        )
    others = max(0, math.ceil(part * len(pairs)) - 1)
    drawn = {len(pairs) - 1, *draw.sample(range(max(0, len(pairs) - 1)), others)}
    intervals = []
    for number, (before, after) in enumerate(pairs):
        first = run.trace.starts[0]["step"] if before is None else before.total
        interval = Interval(first + 1, after.total)
        if number in drawn:
            interval = _recomputed(interval, again, before, after, allowed)
        intervals.append(interval)
    return Verification(
        run.place, (min(run.trace.steps), max(run.trace.steps)), [each.total for each in found], broken,
        intervals, _allowed(run, allowed),
    )  # fmt: skip


def _share(value: object) -> float:
    share = as_number(value)
    if not 0 < share <= 1:
        raise ArgumentError(
            "`share` must be a number above 0 and up to 1.", received=repr(value), fix="Pass share=0.1."
        )
    return share


def _allowed(run: KeptRun, tolerance: float | None) -> float:
    """Return the difference that is allowed; it is called after a rerun, which sets the threads."""
    if tolerance is not None:
        return tolerance
    same = {start["kernels"] for start in run.trace.starts} == {describe_kernels()}
    return 0.0 if same and run.exactly is not None else ROUNDING


def _recomputed(
    interval: Interval, run: RunAgain, before: Checkpoint | None, after: Checkpoint, tolerance: float | None
) -> Interval:
    """Make the steps of an interval again, and compare them."""
    folder = run.kept.checkpoints
    begin, saved = (each and read(folder.path_of(each.position), folder.job) for each in (before, after))
    assert saved is not None
    try:
        made = run.rerun(after.total, begin, saved.position)
    except ArgumentError as error:
        if error.message not in (OTHER_DATA, OTHER_MODEL):
            raise
        reason = f"{error.message} Received: {error.received}"
        return replace(interval, agrees=False, difference=math.inf, step=interval.first_step, reason=reason)
    allowed, traced = _allowed(run.kept, tolerance), run.kept.trace.steps
    again, last = {each.step: each for each in made.steps}, interval.last_step
    by = {
        step: difference(again[step], traced[step]) if step in again and step in traced else math.inf
        for step in range(interval.first_step, last + 1)
    }
    by |= {step: math.inf for step in again if step > last}  # the position is not that of this step
    by[last] = max(by[last], _difference_of_state(made, saved, run.kept.exactly is None))
    differing = [step for step, each in by.items() if each > allowed]
    return replace(
        interval, recomputed=True, agrees=not differing, difference=max(by.values()),
        step=min(differing, default=None),
    )  # fmt: skip


def _difference_of_state(made: Rerun, saved: Checkpoint, own_state: bool) -> float:
    """Return the largest difference of the variables from those of a checkpoint, metrics aside.

    Args:
        own_state: Whether each worker may have had random numbers and averages of its own, which the rerun
            has not.
    """
    metrics = {variable.path for variable in made.model.metrics_variables}
    common = {variable.path for variable in made.model.trainable_variables}
    common |= {v.path for each in tf_internals.optimizers_of(made.model) for v in each.variables}
    parts = parts_of(dict(saved.arrays), 0, 1, saved.notes["workers"])
    if len(parts) < len(made.after):
        return math.inf
    found = 0.0
    for variable, value, part in zip(made.variables, made.after, parts, strict=False):
        is_own = own_state and not part.alike and variable.name not in common
        if variable.name not in metrics and not is_own:
            for own in (part.own, *(() if part.left is None else part.left)):
                same = own.tobytes() == value.tobytes()  # -0.0 and 0.0 are not, but have no difference
                found = max(found, array_difference(value, own), 0.0 if same else sys.float_info.min)
    return found

"""The comparison of steps that were made twice, by their numbers in a trace."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tfdistr.checkpoint.trace import TracedStep

#: The relative difference that other kernels, or another number of workers, may make in a step.
ROUNDING = 1e-3


def difference(one: TracedStep, other: TracedStep) -> float:
    """Return the largest relative difference of the numbers of two steps; infinite if one has no number."""
    if one.skipped != other.skipped:
        return math.inf
    pairs = zip((one.loss, *one.norms, *one.rates), (other.loss, *other.norms, *other.rates), strict=False)
    return max((relative(a, b) for a, b in pairs), default=0.0)


def relative(one: float | None, other: float | None) -> float:
    """Return the relative difference of two numbers; infinite if only one is a finite number."""
    if one == other or (one is not None and other is not None and math.isnan(one) and math.isnan(other)):
        return 0.0
    if one is None or other is None or not (math.isfinite(one) and math.isfinite(other)):
        return math.inf
    return abs(one - other) / max(abs(one), abs(other))


def first_difference(
    one: Mapping[int, TracedStep], other: Mapping[int, TracedStep], tolerance: float = 0.0
) -> int | None:
    """Return the first step of both whose numbers differ by more than ``tolerance``; None if none does."""
    common = sorted(set(one) & set(other))
    return next((step for step in common if difference(one[step], other[step]) > tolerance), None)


def largest_difference(made: Iterable[TracedStep], traced: Mapping[int, TracedStep]) -> float:
    """Return the largest difference of steps from those of a trace."""
    return max((difference(step, traced[step.step]) for step in made if step.step in traced), default=0.0)

"""The comparison of steps that were made twice, by their numbers in a trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tfdistr.checkpoint.trace import TracedStep

#: The relative difference that other kernels, or another number of workers, may make in a step.
ROUNDING = 1e-3


def difference(one: TracedStep, other: TracedStep) -> float:
    """Return the largest relative difference of the numbers of two steps; infinite if one has no number."""
    if one.skipped != other.skipped:
        return math.inf
    return of_numbers((one.loss, *one.norms, *one.rates), (other.loss, *other.norms, *other.rates))


def of_numbers(one: Sequence[float | None], other: Sequence[float | None]) -> float:
    """Return the largest relative difference of numbers and others in the same order."""
    return max((relative(a, b) for a, b in zip(one, other, strict=False)), default=0.0)


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


def first_that(holds: Callable[[int], bool], first: int, last: int) -> int:
    """Return the first step that ``holds``, by halving. It holds for ``last``, and for all after the first.

    The steps just before the last one are tried first.
    """
    size = 1
    while last > first and holds(max(first, last - size)):
        last, size = max(first, last - size), 2 * size
    before = max(first, last - size)
    while last - before > 1:
        middle = (before + last) // 2
        before, last = (before, middle) if holds(middle) else (middle, last)
    return last


def largest_difference(made: Iterable[TracedStep], traced: Mapping[int, TracedStep]) -> float:
    """Return the largest difference of steps from those of a trace."""
    return max((difference(step, traced[step.step]) for step in made if step.step in traced), default=0.0)


def array_difference(one: object, other: object) -> float:
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

"""The difference between results of a training on two numbers of workers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdistr.jobs.outcome import epochs_of
from tfdistr.utils.describe import number_of
from tfdistr.utils.metric_values import columns_of

if TYPE_CHECKING:
    from tfdistr.jobs.result import FitResult

_Array = np.ndarray[Any, Any]

#: What is compared, in this order.
GROUPS = {
    "weight": "weights",
    "optimizer": "variables of the optimizer",
    "history": "metrics of the history",
    "output": "outputs",
}

#: Outputs may differ by this multiple of the tolerance: the differences of the weights add up in them.
OUTPUTS = 10


def difference(expected: _Array | None, received: _Array | None) -> float:
    """Return the largest absolute difference, over the size of the values where that is above 1.

    Values that are NaN or infinite must be so on both sides. It is infinite for arrays of different shapes.
    """
    if expected is None or received is None or expected.shape != received.shape:
        return math.inf
    finite = np.isfinite(expected) & np.isfinite(received)
    if not np.array_equal(expected[~finite], received[~finite], equal_nan=True):
        return math.inf
    largest = np.abs(received - expected)[finite].max(initial=0.0)
    return float(largest / max(1.0, np.abs(expected[finite]).max(initial=0.0)))


@dataclass(frozen=True)
class Pair:
    """An array of two fits.

    Attributes:
        group: One of ``GROUPS``.
        name: Its name in a message.
        first: The array of the first fit; None if it has no such array.
        allowed: The largest difference that is allowed.
    """

    group: str
    name: str
    first: _Array | None
    second: _Array | None
    allowed: float

    @property
    def difference(self) -> float:
        """Return how far the arrays are apart; see ``difference()``."""
        return difference(self.first, self.second)

    @property
    def differs(self) -> bool:
        """Return whether the arrays are too far apart."""
        return self.difference > self.allowed

    @property
    def same_shape(self) -> bool:
        """Return whether both fits have the array, with the same shape."""
        return self.first is not None and self.second is not None and self.first.shape == self.second.shape

    def __str__(self) -> str:
        """Describe by how much the arrays differ, and where."""
        first, second = self.first, self.second
        if first is None or second is None:
            return "it exists in one of the fits only"
        if first.shape != second.shape:
            return f"its shape is {list(first.shape)} and {list(second.shape)}"
        with np.errstate(invalid="ignore"):  # infinite minus infinite
            apart = np.abs(second - first)
        equal = (first == second) | (np.isnan(first) & np.isnan(second))
        apart = np.where(equal, 0.0, np.where(np.isnan(apart), np.inf, apart))
        place = np.unravel_index(int(apart.argmax()), apart.shape)
        size = np.abs(first[np.isfinite(first)]).max(initial=0.0)
        relative = f" ({apart[place] / size:.2g} of its largest value)" if size else ""
        where = f" at {list(map(int, place))}, counted from 0" if place else ""
        return f"by {apart[place]:.3g}{relative}{where}: {first[place]:.9g} and {second[place]:.9g}"


@dataclass(frozen=True)
class Difference:
    """The difference between the fits on two numbers of workers.

    Attributes:
        workers: The two numbers of workers.
        pairs: All that was compared, in the order of ``GROUPS`` and of the model.
        parting: Where the histories diverge; see ``_parting()``.
    """

    workers: tuple[int, int]
    pairs: tuple[Pair, ...]
    tolerance: float
    parting: str

    @property
    def differing(self) -> list[Pair]:
        """Return the pairs that are too far apart."""
        return [pair for pair in self.pairs if pair.differs]

    def __str__(self) -> str:
        """Return the part of the message that is known by comparing."""
        first, second = self.workers
        worst, *_ = differing = self.differing
        outputs = f", and the outputs by {OUTPUTS * self.tolerance:g}" if self.tolerance else ""
        counts = []
        for group, plural in GROUPS.items():
            of_group = [pair for pair in self.pairs if pair.group == group]
            number = sum(pair.group == group for pair in differing)
            counts.append(f"{number} of {len(of_group)} {plural}")
        return "\n".join([
            f"The fits on {first} and {number_of(second, 'worker')} differ by more than "
            f"tolerance={self.tolerance:g}{outputs}.",
            f"First difference: {worst.name}, {worst}",
            f"Different: {', '.join(counts)}",
            f"History: {self.parting}",
        ])  # fmt: skip


def find_difference(
    fits: Sequence[FitResult], outputs: Sequence[object], workers: Sequence[int], tolerance: float
) -> Difference | None:
    """Compare each fit with the first one; return the first difference, or None."""
    for number in range(1, len(fits)):
        pairs = tuple(_pairs(fits[0], fits[number], outputs[0], outputs[number], tolerance))
        if any(pair.differs for pair in pairs):
            numbers = (workers[0], workers[number])
            return Difference(numbers, pairs, tolerance, _parting(fits[0], fits[number], tolerance))
    return None


def _pairs(
    first: FitResult, second: FitResult, output: object, other: object, tolerance: float
) -> Iterator[Pair]:
    """Yield all pairs that are compared of two fits."""
    model, one, two = first.model, first._trained.state(), second._trained.state()
    names = [f'the weight "{weight.path}"' for weight in model.weights]
    yield from _values_of("weight", names, "weight", one.weights, two.weights, tolerance)
    variables = model.optimizer.variables if model.optimizer is not None else ()
    names = [f'the variable "{variable.path}" of the optimizer' for variable in variables]
    kind = "variable of the optimizer"
    yield from _values_of("optimizer", names, kind, one.optimizer.values, two.optimizer.values, tolerance)
    for name in {**first.history, **second.history}:
        values = [np.asarray(fit.history[name]) if name in fit.history else None for fit in (first, second)]
        yield Pair("history", f'the metric "{name}"', values[0], values[1], tolerance)
    yield from _values_of("output", [], "output", _arrays(output), _arrays(other), OUTPUTS * tolerance)


def _values_of(
    group: str,
    names: Sequence[str],
    kind: str,
    first: Sequence[object],
    second: Sequence[object],
    allowed: float,
) -> Iterator[Pair]:
    named = len(names) == len(first)
    for number, values in enumerate(zip_longest(first, second)):
        name = names[number] if named and number < len(names) else f"{kind} {number}, counted from 0"
        one, two = (None if value is None else np.asarray(value, np.float64) for value in values)
        yield Pair(group, name, one, two, allowed)


def _arrays(tree: object) -> list[Any]:
    """Return the arrays of a structure of outputs."""
    if isinstance(tree, Mapping):
        return [array for key in sorted(tree) for array in _arrays(tree[key])]
    if isinstance(tree, list | tuple):
        return [array for part in tree for array in _arrays(part)]
    return [tree]


def _parting(first: FitResult, second: FitResult, tolerance: float) -> str:
    """Return the first epoch whose history differs, with the metric and its values."""
    values: dict[tuple[int, str], list[float]] = {}
    for fit in (first, second):
        epochs = epochs_of(fit)
        for name, column in columns_of(fit.history).items():
            for epoch, value in zip(epochs[name], column, strict=False):
                values.setdefault((epoch, name), []).append(value)
    for (epoch, name), pair in sorted(values.items(), key=lambda item: item[0][0]):
        if len(pair) == 1:
            return f'in epoch {epoch} only one of the fits has the metric "{name}"'
        if difference(np.asarray(pair[0]), np.asarray(pair[1])) > tolerance:
            return f'it parts in epoch {epoch}: the metric "{name}" is {pair[0]:.9g} and {pair[1]:.9g}'
    return "it is the same in all epochs"

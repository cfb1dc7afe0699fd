"""All that steps of a model change, and how far two runs of the same steps are apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray

# A smaller gradient counts as this part of the largest one: what it differs by may be the rounding of that.
_SMALLEST_GRADIENT = 0.1
# A change of a variable counts as at least this part of the variable, whose rounding it has.
_SMALLEST_CHANGE = 0.01
_SMALLEST_LOG = 1e-3


@dataclass
class Effects:
    """The effects of some steps.

    Attributes:
        gradients: The gradients that each optimizer gets, by the number of the step, and within it by the
            number of the gradient and the name of the variable.
        variables: The new values of variables that the steps themselves change, by their names. Weights that
            only an optimizer changes do not change here.
        metrics: The values of the variables of metrics, over all workers.
        logs: The last values of logs that are not the results of metrics.
        results: The logs that are the results of metrics, with these, if there are other logs.
        summed: The same logs, as sums over the workers; the others are means.
        before: The values of all these variables before the steps.
    """

    gradients: dict[int, dict[str, Array]] = field(default_factory=dict)
    variables: dict[str, Array] = field(default_factory=dict)
    metrics: dict[str, Array] = field(default_factory=dict)
    logs: dict[str, Array] = field(default_factory=dict)
    summed: dict[str, Array] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    before: Mapping[str, Array] = field(default_factory=dict)

    @property
    def is_finite(self) -> bool:
        """Return whether all gradients are finite."""
        return all(np.isfinite(g).all() for step in self.gradients.values() for g in step.values())

    def differences(self, other: Effects) -> Iterator[tuple[str, str, float]]:
        """Yield the kind and the name of each effect, and by how much of its size ``other`` differs."""
        for number, gradients in self.gradients.items():
            theirs = other.gradients.get(number, {})
            sizes = {name: _norm(gradient) for name, gradient in gradients.items()}
            least = _SMALLEST_GRADIENT * max(sizes.values(), default=0.0) or 1.0
            for name, gradient in gradients.items():
                apart = _apart(gradient, theirs.get(name))
                yield "gradient", name.partition(" ")[2], apart / max(sizes[name], least)
        for name in sorted({*self.variables, *other.variables}):
            before = self.before[name]
            own, new = self.variables.get(name, before), other.variables.get(name, before)
            yield "variable", name.partition(" ")[2], _of_change(own, new, before)
        for name, value in self.metrics.items():
            size = _of_change(value, other.metrics[name], self.before[name])
            yield "metric", name.partition(" ")[2], size
        for name, value in self.logs.items():
            yield "log", name, _of_log(value, other.logs.get(name))

    def are_sums(self, other: Effects, parts: int, tolerance: float) -> bool:
        """Return whether all gradients of the first step are sums over the rows.

        Those of ``other`` are then means over so many parts with as many rows.
        """
        own, theirs = Effects({0: self.gradients[0]}), other.gradients.get(0, {})
        as_sums = Effects({0: {name: parts * gradient for name, gradient in theirs.items()}})
        return all(size <= tolerance for _, _, size in own.differences(as_sums))

    def sums(self, other: Effects, tolerance: float) -> set[str]:
        """Return the logs that are the sums of those of the workers in ``other``, and not their means."""
        return {
            name
            for name, value in self.logs.items()
            if _of_log(value, other.logs.get(name)) > tolerance >= _of_log(value, other.summed.get(name))
        }


def _of_log(value: Array, other: Array | None) -> float:
    return _apart(value, other) / max(_norm(value), _SMALLEST_LOG)


def _of_change(value: Array, other: Array, before: Array) -> float:
    change = _norm(_as_numbers(value) - _as_numbers(before)) + _SMALLEST_CHANGE * _norm(value)
    return _apart(value, other) / (change or 1.0)


def _apart(value: Array, other: Array | None) -> float:
    if other is None or value.shape != other.shape:
        return float("inf")
    own, others = _as_numbers(value), _as_numbers(other)
    same = (own == others) | (np.isnan(own) & np.isnan(others))
    distance = float(np.linalg.norm(np.where(same, 0.0, own - others)))
    return float("inf") if np.isnan(distance) else distance  # one of them is not finite


def _norm(value: Array) -> float:
    return float(np.linalg.norm(_as_numbers(value)))


def _as_numbers(value: Array) -> Array:
    """Return numbers whose differences are numbers: flags and whole numbers have none of their own."""
    return value if value.dtype in (np.float32, np.float64) else value.astype(np.float64)

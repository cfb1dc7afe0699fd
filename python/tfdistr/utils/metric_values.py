"""The values of metrics, of which some have several, such as ``F1Score(average=None)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def plain_value(value: object) -> Any:
    """Return the value of a metric as a number, or as a list of numbers."""
    return np.asarray(value, float).tolist()


def numbered(name: str, value: object) -> dict[str, float]:
    """Return the numbers of a metric's value by names: several are ``f1_score[0]`` and so on."""
    values = np.asarray(value, float)
    return {
        name + "".join(f"[{i}]" for i in place): float(values[place]) for place in np.ndindex(values.shape)
    }


def columns_of(history: Mapping[str, Sequence[object]]) -> dict[str, list[float]]:
    """Return a history with a column of numbers for each number of a metric."""
    columns: dict[str, list[float]] = {}
    for name, values in history.items():
        for value in values:
            for label, number in numbered(name, value).items():
                columns.setdefault(label, []).append(number)
    return columns

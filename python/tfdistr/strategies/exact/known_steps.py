"""The findings of the check of the first batch, for each model."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras

from tfdistr import tf_internals


@dataclass
class KnownLogs:
    """The findings about the logs of a step of the user.

    Attributes:
        sums: The names of the logs that are sums over rows.
        results: The logs that are the results of metrics, with these metrics.
    """

    sums: set[str] = field(default_factory=set)
    results: Mapping[str, keras.metrics.Metric] = field(default_factory=dict)


@dataclass
class KnownModel:
    """The findings about a compiled model. A decision about a loss or a metric stays: a trace may have it.

    Attributes:
        compiled: The objects that ``compile()`` has made.
        losses: For the number of each loss of ``compile()``, whether it is a function of the whole batch.
        metrics: For the id of each metric the metric, and whether it is a function of the whole batch.
        logs: The logs of its steps, by "train" or "test".
        checked: The differences that the check has found, by "train" or "test".
    """

    compiled: tuple[Any, ...]
    losses: dict[int, bool] = field(default_factory=dict)
    metrics: dict[int, tuple[Any, bool]] = field(default_factory=dict)
    logs: dict[str, KnownLogs] = field(default_factory=dict)
    checked: dict[str, list[str]] = field(default_factory=dict)

    @property
    def over_batch(self) -> tf_internals.OverBatch:
        """The losses and metrics that get the rows of all workers."""
        losses = [number for number, is_over in self.losses.items() if is_over]
        metrics = [metric for metric, is_over in self.metrics.values() if is_over]
        return tf_internals.OverBatch(losses, metrics)

    def logs_of(self, kind: str | None) -> KnownLogs:
        """Return the findings about the logs of the step of a kind."""
        return self.logs.get(kind or "") or KnownLogs()


class KnownSteps:
    """The findings about models, each since its last ``compile()``."""

    def __init__(self) -> None:
        self._models: weakref.WeakKeyDictionary[keras.Model, KnownModel] = weakref.WeakKeyDictionary()

    def of(self, model: keras.Model) -> KnownModel:
        """Return the findings about a model."""
        compiled = tf_internals.compiled_parts(model)
        known = self._models.get(model)
        if known is None or any(a is not b for a, b in zip(known.compiled, compiled, strict=True)):
            known = self._models[model] = KnownModel(compiled)
        return known

    def common_variables(self, model: keras.Model | None = None) -> Iterator[Any]:
        """Yield the variables of metrics that are the same on all workers: of a model, or of all models."""
        for known in self._models.values() if model is None else [self.of(model)]:
            for metric in known.over_batch.metrics:
                yield from metric.variables

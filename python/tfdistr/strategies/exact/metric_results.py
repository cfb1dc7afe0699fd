"""The results of metrics that a step computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from tfdistr import tf_internals


class MetricResults:
    """The results of metrics that a step computes. They show which of its logs are such results."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[keras.metrics.Metric, object]] = {}

    @contextlib.contextmanager
    def noted(self, model: keras.Model) -> Iterator[None]:
        """Note the results of a model's metrics within the context."""
        with contextlib.ExitStack() as stack:
            for metric in tf_internals.all_metrics(model):
                stack.enter_context(tf_internals.overridden(metric, "result", self._noting(metric)))
            yield

    def _noting(self, metric: keras.metrics.Metric) -> Callable[[], object]:
        result = metric.result

        def noting() -> object:
            value = result()
            if tf.is_tensor(value):
                self._known[id(value)] = metric, value  # the value, so that its id stays its own
            return value

        return noting

    def metric_of(self, log: object) -> keras.metrics.Metric | None:
        """Return the metric whose result a log is; None if it is something else."""
        return self._known[id(log)][0] if id(log) in self._known else None

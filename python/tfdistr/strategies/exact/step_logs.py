"""The logs that a training or test step returns, and the results of metrics among them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.strategies.exact.exchange import scale
from tfdistr.strategies.exact.replica import OneReplica


def flat_logs(logs: object) -> Any:
    """Sort logs by name, and replace a dictionary among them by its entries, as Keras does for callbacks.

    The logs ``{m.name: m.result() for m in self.metrics}`` have such a dictionary: the ``result()`` of all
    metrics of ``compile()``. Keras compares the logs with the values of all metrics before it flattens them,
    and then keeps those of the last step. On several workers these are the values of one worker, so logs of
    a step must be flat.
    """
    if not isinstance(logs, dict):
        return logs
    flat: dict[str, Any] = {}
    for name, value in sorted(logs.items()):
        flat |= flat_logs(value) if isinstance(value, dict) else {name: value}
    return flat


def combine_logs(extended: OneReplica, model: keras.Model) -> None:
    """Make the logs of the model's own steps, which are no metrics, those of all workers after an epoch.

    A log that is the result of a metric is its result over all workers. Another log is that of the last step:
    the mean over the workers, weighted by their rows, or the sum, if the check of the first batch has found
    that it is a sum. What is no number stays the worker's own.
    """
    if extended.collectives is None or extended.virtual is not None:  # virtual workers do it in each step
        return
    if any(tf_internals.overrides(model, name) for name in ("train_step", "test_step")):
        tf_internals.reduce_step_logs(model, lambda logs: _combined(extended, model, logs))


def _combined(extended: OneReplica, model: keras.Model, logs: dict[str, object]) -> dict[str, object]:
    call = tf_internals.keras_call()
    kind = extended.step.kind or ("test" if call and call.method == "evaluate" else "train")
    known = extended.known.of(model).logs_of(kind)
    with extended.within(sums=extended.read_together(model.metrics_variables)):
        results = {log: metric.result() for log, metric in known.results.items() if log in logs}
    others = {name: value for name, value in logs.items() if name not in results}
    return {**logs, **results, **_over_workers(extended, others, known.sums)}


def _over_workers(extended: OneReplica, logs: dict[str, Any], sums: Collection[str]) -> dict[str, object]:
    """Return the numbers among logs over all workers."""
    assert extended.collectives is not None
    values = {name: _float(value) for name, value in logs.items()}
    numbers = {name: value for name, value in values.items() if value is not None}
    rows = tf.cast(extended.rows_of_step, tf.float64)
    parts = [value if name in sums else scale(value, rows) for name, value in numbers.items()]
    *totals, count = extended.collectives.all_reduce(tf.distribute.ReduceOp.SUM, [*parts, rows])
    together = zip(numbers, totals, strict=True)
    return {name: total if name in sums else total / count for name, total in together}


def _float(value: object) -> tf.Tensor | None:
    try:
        return tf.cast(tf.convert_to_tensor(value), tf.float64)
    except (TypeError, ValueError, tf.errors.UnimplementedError):
        return None


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

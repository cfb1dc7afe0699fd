"""The losses and metrics that are functions of the whole batch, and so get the rows of all workers.

Each is tried on the rows of a first batch, whole and in parts. If the parts of a loss, each with its weight,
do not add up to its value and its gradient, or the states of a metric do not, it is such a function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.strategies.exact.exchange import NoPeers, ReplicaStep

#: The first calls by a key: what was called, and its arguments.
FirstCalls = dict[int, tuple[Any, tuple[Any, ...], dict[str, Any]]]
#: The largest part of the size of a value, or of a gradient, by which rounding may change it.
Tolerance = float


@dataclass
class Calls:
    """The first call of each loss of ``compile()``, by its number, and of each metric."""

    losses: FirstCalls = field(default_factory=dict)
    metrics: FirstCalls = field(default_factory=dict)


@contextlib.contextmanager
def observed(model: keras.Model) -> Iterator[Calls]:
    """Note the calls of losses and metrics within the context."""
    losses: FirstCalls = {}
    with (
        tf_internals.replaced_losses(model, lambda n, loss: _noting(losses, n, loss, loss)),
        first_calls(tf_internals.all_metrics(model), "update_state") as metrics,
    ):
        yield Calls(losses, metrics)


@contextlib.contextmanager
def first_calls(of: Iterable[Any], method: str) -> Iterator[FirstCalls]:
    """Note the first call of a method of each object, by its id, within the context."""
    calls: FirstCalls = {}
    with contextlib.ExitStack() as stack:
        for each in of:
            call = _noting(calls, id(each), each, getattr(each, method))
            stack.enter_context(tf_internals.overridden(each, method, call))
        yield calls


def _noting(calls: FirstCalls, key: int, of: object, call: Callable[..., object]) -> Callable[..., object]:
    """Return ``call`` as a function that notes its first arguments."""

    def noted(*args: object, **kwargs: object) -> object:
        calls.setdefault(key, (of, args, kwargs))
        return call(*args, **kwargs)

    return noted


def over_batch(calls: Calls, rows: int, parts: int, tolerance: Tolerance) -> tf_internals.OverBatch:
    """Return which of the called losses and metrics are functions of the whole batch, and can get its rows.

    Those that gather rows by themselves are not among them. Must be called by a replica without peers.
    """
    losses = [
        number
        for number, (loss, given, _) in calls.losses.items()
        if _has_rows(given, rows) and _fails(_loss_adds_up, loss, given, parts, tolerance)
    ]
    metrics = [
        metric
        for metric, *given in calls.metrics.values()
        if _has_rows(given, rows) and _fails(_metric_adds_up, metric, given, parts, tolerance)
    ]
    return tf_internals.OverBatch(losses, metrics)


def _fails(adds_up: Callable[..., bool], *arguments: object) -> bool:
    """Return whether the parts of something that exchanges no values do not add up."""
    replica = ReplicaStep(NoPeers(), None, 0, 1)
    with replica.entered():
        return not adds_up(*arguments) and not replica.has_communicated


def bytes_per_row(found: tf_internals.OverBatch, calls: Calls) -> int:
    """Return how many bytes a row of the arguments of losses and metrics has."""
    given = [calls.losses[number][1] for number in found.losses]
    given += [calls.metrics[id(metric)][1:] for metric in found.metrics]
    tensors = [value for value in keras.tree.flatten(given) if isinstance(value, tf.Tensor)]
    return sum(int(tf.size(value)) * value.dtype.size // value.shape[0] for value in tensors)


def _has_rows(given: object, rows: int) -> bool:
    """Return whether all tensors in a structure are dense numbers for each row."""
    tensors = [value for value in keras.tree.flatten(given) if tf.is_tensor(value)]
    return bool(tensors) and all(
        isinstance(value, tf.Tensor) and value.dtype != tf.string and value.shape[:1] == [rows]
        for value in tensors
    )


def _part(given: Any, number: int, parts: int) -> Any:
    """Return the rows of a part of the tensors in a structure, with their masks."""

    def cut(value: object) -> Any:
        if not isinstance(value, tf.Tensor):
            return value
        size = value.shape[0] // parts
        return tf_internals.with_attributes(value, lambda rows: rows[number * size : (number + 1) * size])

    return keras.tree.map_structure(cut, given)


def _loss_adds_up(loss: Any, given: tuple[Any, ...], parts: int, tolerance: Tolerance) -> bool:
    """Return whether the parts of a loss add up; a loss without a reduction is left to the check."""
    y_true, y_pred, weight = given
    outputs = keras.tree.flatten(y_pred)
    outputs += [part for output in outputs for part in tf_internals.attached(output)]
    watched = [value for value in outputs if value.dtype.is_floating]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(watched)
        whole = loss(y_true, y_pred, weight)
        if whole.shape.rank:
            return True
        values = [_shared(loss, _part(given, number, parts)) for number in range(parts)]
        divisors = [divisor for _, divisor in values]
        total = tf.add_n([value * _factor(divisor, divisors) / parts for value, divisor in values])
    pairs = [(whole, total), *zip(tape.gradient(whole, watched), tape.gradient(total, watched), strict=True)]
    return all(alike(*pair, tolerance) for pair in pairs)


def _shared(loss: Any, given: tuple[Any, ...]) -> tuple[tf.Tensor, Any]:
    """Return a loss, and by what it was divided: a number, "sum" for a sum, None for the number of rows."""
    asked: list[Any] = []

    def share(divisor: tf.Tensor | None) -> tf.Tensor:
        asked.append("sum" if divisor is None else tf.cast(divisor, tf.float32))
        return tf.ones([], tf.float64)

    value = tf_internals.SharedLoss(loss, share)(*given)
    return value, asked[0] if asked else None


def _factor(divisor: Any, divisors: Sequence[Any]) -> object:
    """Return the factor of a loss that ``MeanOverExamples.share`` returns, for parts of the same size."""
    if divisor is None:
        return 1.0
    if isinstance(divisor, str):
        return float(len(divisors))
    return tf.math.divide_no_nan(len(divisors) * divisor, tf.add_n(list(divisors)))


def _metric_adds_up(metric: Any, given: Any, parts: int, tolerance: Tolerance) -> bool:
    def state_after(given: Any) -> list[tf.Tensor]:
        args, kwargs = given
        metric.reset_state()
        metric.update_state(*args, **kwargs)
        return [tf.convert_to_tensor(variable.value) for variable in metric.variables]

    kept = [tf.convert_to_tensor(variable.value) for variable in metric.variables]
    try:
        whole = state_after(given)
        each = [state_after(_part(given, number, parts)) for number in range(parts)]
    finally:
        for variable, value in zip(metric.variables, kept, strict=True):
            variable.assign(value)
    sums = [tf.add_n(list(values)) for values in zip(*each, strict=True)]
    return all(alike(*pair, tolerance) for pair in zip(whole, sums, strict=True))


def alike(value: Any, other: Any, tolerance: Tolerance) -> bool:
    """Return whether two values differ by rounding only; None is a gradient that does not exist."""
    if value is None or other is None:
        return value is other
    value, other = (tf.cast(tf.convert_to_tensor(each), tf.float64) for each in (value, other))
    size = float(tf.norm(value)) or 1.0
    return float(tf.norm(value - other)) <= tolerance * size

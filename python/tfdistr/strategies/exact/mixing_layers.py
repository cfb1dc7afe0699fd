"""The layers of a model that use several rows of a batch at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.data.order.shard import cut_rows
from tfdistr.strategies.exact.loss_weighting import count_examples

#: The first call of each layer: the layer, and the arguments.
LayerCalls = dict[int, tuple[keras.Layer, tuple[object, ...], dict[str, object]]]


@contextlib.contextmanager
def observed_layers(model: keras.Model) -> Iterator[LayerCalls]:
    """Note the first call of each layer of a model within the context."""
    calls: LayerCalls = {}
    with contextlib.ExitStack() as stack:
        for layer in tf_internals.all_layers(model):
            call = _observed(calls, layer, layer.call)
            stack.enter_context(tf_internals.overridden(layer, "call", call))
        yield calls


def _observed(calls: LayerCalls, layer: keras.Layer, call: Callable[..., object]) -> Callable[..., object]:
    def observed(*args: object, **kwargs: object) -> object:
        calls.setdefault(id(layer), (layer, args, kwargs))
        return call(*args, **kwargs)

    return observed


def mixing_layers(calls: LayerCalls, rows: int, parts: int, tolerance: float) -> dict[str, bool]:
    """Return the innermost layers that mix rows, and whether each only adds losses that are sums."""
    mixing: list[tuple[keras.Layer, bool]] = []
    for layer, args, kwargs in calls.values():
        with contextlib.suppress(Exception):  # a layer that takes no part by itself
            mixes, adds = _mixes(layer, args, kwargs, rows, parts, tolerance)
            if mixes or adds:
                mixing.append((layer, not mixes))
    outer = {id(layer) for layer, _ in mixing if any(_is_inside(other, layer) for other, _ in mixing)}
    return {f"the layer {layer.name!r}": adds for layer, adds in mixing if id(layer) not in outer}


def _is_inside(layer: keras.Layer, other: keras.Layer) -> bool:
    return layer is not other and any(layer is inner for inner in tf_internals.all_layers(other))


def _mixes(layer: Any, args: Any, kwargs: Any, rows: int, parts: int, tolerance: float) -> tuple[bool, bool]:
    """Return whether a layer uses several rows at once, and whether its losses are sums over the rows."""

    def run(number: int | None) -> tuple[list[tf.Tensor], tf.Tensor]:
        given = (args, kwargs) if number is None else _part((args, kwargs), rows, parts, number)
        with tf_internals.alike_for_all_rows(tf_internals.Draws()):
            outputs = keras.tree.flatten(layer(*given[0], **given[1]))
        losses = [tf.cast(loss, tf.float32) for loss in layer.losses]
        return [tf.cast(each, tf.float32) for each in outputs], tf.add_n(losses) if losses else tf.zeros([])

    def alike(one: tf.Tensor, other: tf.Tensor) -> bool:
        allowed = tolerance * (float(tf.norm(one)) or 1.0)
        return one.shape != other.shape or float(tf.norm(one - other)) <= allowed

    whole, loss = run(None)
    each = [run(number) for number in range(parts)]
    together = [tf.concat(outputs, 0) for outputs in zip(*(outputs for outputs, _ in each), strict=True)]
    total = tf.add_n([part for _, part in each])
    is_mean, is_sum = alike(loss, total / parts), alike(loss, total)
    return not (all(map(alike, whole, together)) and (is_mean or is_sum)), is_sum and not is_mean


def _part(given: Any, rows: int, parts: int, number: int) -> Any:
    size = rows // parts
    first, end = (tf.constant(row, tf.int64) for row in (number * size, (number + 1) * size))

    def cut(value: Any) -> Any:
        is_rows = tf.is_tensor(value) and value.shape.rank and int(count_examples(value)) == rows
        return cut_rows(value, lambda _: (first, end)) if is_rows else value

    return tf.nest.map_structure(cut, given)

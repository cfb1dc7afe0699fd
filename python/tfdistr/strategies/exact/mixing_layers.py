"""The layers of a model that use several rows of a batch at once."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.strategies.exact.loss_weighting import count_examples
from tfdistr.strategies.exact.over_batch import FirstCalls, Tolerance, alike
from tfdistr.strategies.exact.rows_of_all import rows_between


def mixing_layers(calls: FirstCalls, rows: int, parts: int, tolerance: Tolerance) -> dict[str, bool]:
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


def _mixes(
    layer: Any, args: Any, kwargs: Any, rows: int, parts: int, tolerance: Tolerance
) -> tuple[bool, bool]:
    """Return whether a layer uses several rows at once, and whether its losses are sums over the rows."""

    def run(number: int | None) -> tuple[list[tf.Tensor], tf.Tensor]:
        given = (args, kwargs) if number is None else _part((args, kwargs), rows, parts, number)
        with tf_internals.alike_for_all_rows(tf_internals.Draws()):
            outputs = keras.tree.flatten(layer(*given[0], **given[1]))
        losses = [tf.cast(loss, tf.float32) for loss in layer.losses]
        return outputs, tf.add_n(losses) if losses else tf.zeros([])

    def same(one: tf.Tensor, other: tf.Tensor) -> bool:
        return one.shape != other.shape or alike(one, other, tolerance)  # some outputs have no rows

    whole, loss = run(None)
    each = [run(number) for number in range(parts)]
    together = [tf.concat(outputs, 0) for outputs in zip(*(outputs for outputs, _ in each), strict=True)]
    total = tf.add_n([part for _, part in each])
    is_mean, is_sum = same(loss, total / parts), same(loss, total)
    return not (all(map(same, whole, together)) and (is_mean or is_sum)), is_sum and not is_mean


def _part(given: Any, rows: int, parts: int, number: int) -> Any:
    size = rows // parts

    def cut(value: Any) -> Any:
        is_rows = tf.is_tensor(value) and value.shape.rank and int(count_examples(value)) == rows
        return rows_between(value, number * size, size) if is_rows else value

    return tf.nest.map_structure(cut, given)

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


def mixing_layers(calls: LayerCalls, rows: int, parts: int, tolerance: float) -> list[str]:
    """Return the innermost layers whose outputs, or own losses, are not those of each part by itself."""
    mixing: list[keras.Layer] = []
    for layer, args, kwargs in calls.values():
        with contextlib.suppress(Exception):  # a layer that takes no part by itself
            if _mixes(layer, args, kwargs, rows, parts, tolerance):
                mixing.append(layer)
    outer = {id(layer) for layer in mixing if any(_is_inside(other, layer) for other in mixing)}
    return [f"the layer {layer.name!r}" for layer in mixing if id(layer) not in outer]


def _is_inside(layer: keras.Layer, other: keras.Layer) -> bool:
    return layer is not other and any(layer is inner for inner in tf_internals.all_layers(other))


def _mixes(layer: Any, args: Any, kwargs: Any, rows: int, parts: int, tolerance: float) -> bool:
    def run(number: int | None) -> tuple[list[tf.Tensor], tf.Tensor]:
        given = (args, kwargs) if number is None else _part((args, kwargs), rows, parts, number)
        with tf_internals.alike_for_all_rows(tf_internals.Draws()):
            outputs = keras.tree.flatten(layer(*given[0], **given[1]))
        losses = [tf.cast(loss, tf.float32) for loss in layer.losses]
        return [tf.cast(each, tf.float32) for each in outputs], tf.add_n(losses) if losses else tf.zeros([])

    whole, loss = run(None)
    each = [run(number) for number in range(parts)]
    together = [tf.concat(outputs, 0) for outputs in zip(*(outputs for outputs, _ in each), strict=True)]
    pairs = [*zip(whole, together, strict=True), (loss, tf.add_n([part for _, part in each]) / parts)]
    alike = [(a, b) for a, b in pairs if a.shape == b.shape]
    return not all(float(tf.norm(a - b)) <= tolerance * (float(tf.norm(a)) or 1.0) for a, b in alike)


def _part(given: Any, rows: int, parts: int, number: int) -> Any:
    size = rows // parts
    first, end = (tf.constant(row, tf.int64) for row in (number * size, (number + 1) * size))

    def cut(value: Any) -> Any:
        is_rows = tf.is_tensor(value) and value.shape.rank and int(count_examples(value)) == rows
        return cut_rows(value, lambda _: (first, end)) if is_rows else value

    return tf.nest.map_structure(cut, given)

"""Weights of classes, as weights of their examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfdistr.errors import ArgumentError


def weigh_classes(weights: Mapping[int, float], spec: Any) -> Callable[[Any], Any]:
    """Return a function that adds the weights of the classes: ``(x, y)`` becomes ``(x, y, sample_weight)``.

    Args:
        weights: Weight of each class by its number. Other classes have the weight 1.
        spec: The types of a batch. Its target has whole numbers, or is one-hot.

    Raises:
        ArgumentError: The examples already have weights, or do not have exactly one target.
    """
    if not isinstance(spec, tuple) or len(spec) != 2 or tf.nest.is_nested(spec[1]):
        raise ArgumentError(
            "`class_weight` is for data (x, y) with one target and no sample weights.",
            received=f"batches of {spec}",
            fix="Leave `class_weight` out and give each example its weight: (x, y, sample_weight).",
        )
    # The last entry stands for all other classes.
    table = [float(weights.get(number, 1.0)) for number in range(max(weights) + 2)]

    def weigh(batch: tuple[Any, tf.Tensor]) -> tuple[Any, tf.Tensor, tf.Tensor]:
        x, y = batch
        if y.shape.rank is not None and y.shape.rank >= 2 and y.shape[-1] != 1:
            classes = tf.argmax(y, axis=-1, output_type=tf.int32)
        else:
            whole = y if y.dtype.is_integer or y.dtype.is_bool else tf.round(y)
            classes = tf.cast(whole, tf.int32)
            classes = tf.squeeze(classes, axis=-1) if (y.shape.rank or 0) >= 2 else classes
        known = (classes >= 0) & (classes < len(table) - 1)
        return x, y, tf.gather(
            tf.constant(table, keras.config.floatx()), tf.where(known, classes, len(table) - 1)
        )  # fmt: skip

    return weigh

"""Labels that are text are refused before the first step, where Keras would make numbers of them."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfdistr.errors import ArgumentError


def check_labels(model: keras.Model, element_spec: Any) -> None:
    """Check that the labels are numbers if the losses of ``compile()`` get them.

    Keras casts labels to the type of the outputs before it calls a loss, also one of the user's. The error of
    TensorFlow ("Cast string to float is not supported") names neither the labels nor the fix. A training step
    or a ``__call__()`` of the user's may do with text what it likes.

    Args:
        model: A compiled model.
        element_spec: The shapes and types of a batch: of inputs, labels and weights.

    Raises:
        ArgumentError: The labels are text.
    """
    labels = element_spec[1] if isinstance(element_spec, tuple) and len(element_spec) > 1 else ()
    if not any(part.dtype == tf.string for part in tf.nest.flatten(labels)):
        return
    losses = [loss for loss in tf.nest.flatten(model.loss) if loss is not None]
    steps = ("train_step", "compute_loss")
    replaced = any(getattr(type(model), name) is not getattr(keras.Model, name) for name in steps)
    if losses and not replaced and not any(map(_casts_nothing, losses)):
        raise ArgumentError(
            "The labels must be numbers: Keras casts them to the type of the model's outputs.",
            received="text as labels",
            fix="Pass the numbers of the classes, from 0: in R a factor, as in `y = factor(y)`; in Python "
            "`pandas.factorize(y)[0]`. Files need a column of numbers as their `target`.",
        )


def _casts_nothing(loss: Any) -> bool:
    return isinstance(loss, keras.losses.Loss) and type(loss).__call__ is not keras.losses.Loss.__call__

"""The state of a model outside of its variables, which an eager step may change."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals

_PLAIN = (bool, int, float, str, type(None), tf.Tensor, np.ndarray)


class PythonState:
    """The plain attributes of a model, its layers and its metrics: numbers, text, tensors, and lists."""

    def __init__(self, model: keras.Model) -> None:
        holders = [model, *tf_internals.all_layers(model), *model.metrics]
        self._kept = [(vars(holder), _plain(vars(holder))) for holder in holders]

    def restore(self) -> None:
        """Give each attribute the value that it had when this object was made."""
        for attributes, kept in self._kept:
            for name, (value, content) in kept.items():
                attributes[name] = value
                if isinstance(value, list):  # not by its own methods: Keras's lists track what they get
                    list.clear(value)
                    list.extend(value, content)


def _plain(attributes: dict[str, Any]) -> dict[str, tuple[Any, list[Any]]]:
    """Return the plain values among the attributes of an object, each with its content if it is a list.

    Those with an underline, and ``built``, are Keras's own: they change together with others.
    """
    return {
        name: (value, list(value) if isinstance(value, list) else [])
        for name, value in attributes.items()
        if isinstance(value, (*_PLAIN, list)) and not name.startswith("_") and name != "built"
    }

"""The state of a model outside of its variables, which an eager step may change."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals

_PLAIN = (bool, int, float, str, type(None), tf.Tensor, np.ndarray)


class PythonState:
    """The plain attributes of a model, its layers and its metrics: numbers, text, tensors, lists, and so on.

    Those that all Keras objects have are Keras's own: they change together with others.
    """

    def __init__(self, model: keras.Model) -> None:
        of_keras = {*vars(keras.Model()), *vars(keras.layers.Layer()), *vars(keras.metrics.Metric())}
        holders = [model, *tf_internals.all_layers(model), *model.metrics]
        self._kept = [(vars(holder), _plain(vars(holder), of_keras)) for holder in holders]

    def restore(self) -> None:
        """Give each attribute the value that it had when this object was made."""
        for attributes, kept in self._kept:
            for name, (value, content) in kept.items():
                attributes[name] = value
                held = _held(value)
                # Not by their own methods: Keras's lists and dictionaries track what they get.
                if content is not None and issubclass(type(held), list):
                    list.clear(held)
                    list.extend(held, content)
                elif content is not None:
                    dict.clear(held)
                    dict.update(held, content)


def _plain(attributes: dict[str, object], left: set[str]) -> dict[str, tuple[Any, Any]]:
    """Return the plain values among attributes, but those in ``left``, each with a copy of its content."""
    found = {name: value for name, value in attributes.items() if name not in left}
    contents = {name: _content(value) for name, value in found.items()}
    return {
        name: (value, contents[name])
        for name, value in found.items()
        if contents[name] is not None or isinstance(value, _PLAIN)
    }


def _held(value: object) -> Any:
    """Return the list or dictionary in one that TensorFlow has wrapped."""
    return getattr(value, "__wrapped__", value)


def _content(value: object) -> list[Any] | dict[Any, Any] | None:
    held = _held(value)
    if issubclass(type(held), list):
        return list(held)
    return dict(held) if issubclass(type(held), dict) else None

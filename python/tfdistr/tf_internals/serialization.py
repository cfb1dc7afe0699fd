"""The objects that Keras describes when it saves a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
from keras.src.saving import serialization_lib

from tfdistr.tf_internals.keras_step import overridden


def serialized(model: keras.Model) -> tuple[Any, list[Any]]:
    """Return the description of a model, and the objects and functions that have a name in it.

    The description has names only, and for a function not even its module. Keras looks for these names in
    the process that loads the model. (``serialization_lib._get_class_or_fn_config`` sees each object.)

    Raises:
        Exception: What ``get_config()`` of an object has raised.
    """
    objects: list[Any] = []
    describe = serialization_lib._get_class_or_fn_config

    def see(obj: Any) -> Any:
        objects.append(obj)
        return describe(obj)

    with overridden(serialization_lib, "_get_class_or_fn_config", see), whole_configs():
        described = keras.saving.serialize_keras_object(model)
    return described, objects


def compile_arguments(model: keras.Model) -> dict[str, Any]:
    """Return the arguments of Keras's ``compile()``. ``get_compile_config()`` only describes them."""
    return dict(model._compile_config.config) if hasattr(model, "_compile_config") else {}


@contextlib.contextmanager
def whole_configs() -> Iterator[None]:
    """Within the context, the configuration of a Huber loss has its ``delta``, which Keras leaves out."""
    huber = keras.losses.Huber
    usual = huber.get_config

    def get_config(loss: Any) -> dict[str, Any]:
        return {**usual(loss), **(loss._fn_kwargs if type(loss) is huber else {})}

    with overridden(huber, "get_config", get_config):
        yield

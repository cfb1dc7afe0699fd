"""Descriptions of a call's model that workers compare, before and after its variables are made."""

from __future__ import annotations

import re
from types import FunctionType
from typing import Any

import keras
import tensorflow as tf

from tfdistr.tf_internals import all_layers, given_metrics

# The number that Keras adds to a name.
_NUMBER = re.compile(r"_\d+$")


def describe_parts(model: keras.Model) -> dict[str, str | None]:
    """Describe the parts of a model, before its variables are made.

    Workers that make other variables would wait for each other. The user's functions and classes cannot be
    compared, because each language has its own. So they are equal to anything.
    """
    fields: dict[str, str | None] = {"model": type(model).__name__}
    # A Sequential model gets its input when it is built, if not before.
    layers = [layer for layer in all_layers(model) if not isinstance(layer, keras.layers.InputLayer)]
    for number, layer in enumerate(layers):
        fields[f"layer {number}"] = f"{type(layer).__name__}({_numbers(layer)})"
    fields["optimizer"] = _describe_optimizer(model)
    losses = [_describe_loss(loss) for loss in tf.nest.flatten(getattr(model, "loss", None))]
    fields["loss"] = None if None in losses else ", ".join(filter(None, losses))
    fields["metrics"] = ", ".join(map(_name_of_metric, given_metrics(model))) or "none"
    return fields


def parts_of_run(model: keras.Model) -> dict[str, str | None]:
    """Describe what must not change when a run resumes: the parts without the optimizer's numbers.

    Training changes these, such as the learning rate, and the caller may have given a trained model.
    """
    optimizer = getattr(model, "optimizer", None)
    return {**describe_parts(model), "optimizer": type(optimizer).__name__}


def describe_model(model: keras.Model, element_spec: Any) -> dict[str, str]:
    """Describe the model of a call, and the types of its data."""
    size = f"{type(model).__name__} of {len(model.weights)} weights"
    fields = {"data": describe_types(element_spec), "model": size}
    for number, layer in enumerate(all_layers(model)):
        shapes = ", ".join(str(tuple(weight.shape)) for weight in layer.weights)
        fields[f"layer {number}"] = f"{type(layer).__name__}({_numbers(layer)}; weights {shapes or 'none'})"
    optimizer = _describe_optimizer(model)
    return fields if optimizer == "none" else {**fields, "optimizer": optimizer}


def _describe_optimizer(model: keras.Model) -> str:
    optimizer = getattr(model, "optimizer", None)
    return "none" if optimizer is None else f"{type(optimizer).__name__}({_numbers(optimizer)})"


def _describe_loss(loss: Any) -> str | None:
    """Describe a Keras loss as an object, even if it is given by its name; None for the user's loss."""
    if loss is None:
        return "none"
    try:
        found = keras.losses.get(loss)
    except ValueError:  # a value for the user's compile()
        return None
    if not _is_of_keras(found):
        return None
    if isinstance(found, FunctionType):
        kinds = {_plain_name(kind): kind for kind in vars(keras.losses).values() if isinstance(kind, type)}
        kind = kinds.get(_plain_name(found))
        found = found if kind is None else kind()
    if isinstance(found, FunctionType):
        return found.__name__
    return f"{type(found).__name__}({_numbers(found)})"


def _name_of_metric(metric: Any) -> str:
    """Return the name of a Keras metric in the history."""
    if isinstance(metric, str):
        return metric
    if isinstance(metric, keras.metrics.Metric):
        return _NUMBER.sub("", metric.name)
    return metric.__name__ if _is_of_keras(metric) else "a function"


def _plain_name(part: Any) -> str:
    return str(part.__name__).replace("_", "").lower()


def _is_of_keras(part: Any) -> bool:
    kind = part if isinstance(part, FunctionType | type) else type(part)
    return (kind.__module__ or "").partition(".")[0] == "keras"


def _numbers(part: Any) -> str:
    """Return the numbers, flags and words in the configuration of a layer or an optimizer."""
    try:
        config = part.get_config()
    except Exception:  # the user's class need not have a configuration
        return ""
    return ", ".join(
        f"{name}={_number(value)}"
        for name, value in config.items()
        # Names have a number from the order of creation, which may differ.
        if name != "name" and isinstance(value, int | float | str)
    )


def _number(value: float | str) -> str:
    """Format a number; a whole number looks like one, although R has it as a float."""
    if not isinstance(value, float):
        return str(value)
    return str(int(value)) if value.is_integer() else f"{value:.7g}"


def describe_types(element_spec: Any) -> str:
    """Describe the types and shapes of the examples of batches.

    Whole numbers have one type: R has them in 32 bits, and Python in 64.
    """
    described = []
    for part in tf.nest.flatten(element_spec):
        if hasattr(part, "dtype"):
            kind = "integer" if part.dtype.is_integer else part.dtype.name
            described.append(f"{kind}{'' if part.shape.rank is None else part.shape[1:].as_list()}")
    return ", ".join(described)

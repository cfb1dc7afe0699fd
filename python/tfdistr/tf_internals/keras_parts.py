"""Private state of Keras that says what the parts of a compiled model are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
from keras.src import losses as _losses
from keras.src import metrics as _metrics


class GraphCall(NamedTuple):
    """A call of an operation in the graph of a functional model."""

    operation: keras.Operation
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[keras.KerasTensor]


def graph_calls(model: keras.Model) -> Iterator[GraphCall]:
    """Yield the calls of the operations in a functional model that are no layers, each after its inputs.

    (The calls of an operation, ``_inbound_nodes``, have no public name.)
    """
    for operation in getattr(model, "operations", ()):
        if not isinstance(operation, keras.Layer):
            for node in operation._inbound_nodes:
                yield GraphCall(operation, node.arguments.args, node.arguments.kwargs, node.outputs)


def input_ranks(layer: keras.Layer) -> list[set[int]]:
    """Return the ranks of the inputs of a layer, for each symbolic call. A layer in a layer has no such call.

    (``Layer.input`` has only the inputs of the first call.)
    """
    ranks = [{len(tensor.shape) for tensor in node.input_tensors} for node in layer._inbound_nodes]
    return [each for each in ranks if each]


def given_losses(model: keras.Model) -> list[object]:
    """Return the losses that ``compile`` was given: objects, functions or names."""
    given = getattr(getattr(model, "_compile_loss", None), "_user_loss", None)
    return [loss for loss in keras.tree.flatten(given) if loss is not None]


def named(kind: str, given: object) -> Any:
    """Return the class or the function that Keras uses for the name of a loss or a metric.

    ``keras.metrics.get()`` would create the variables of a metric, so this reads its private table.

    Args:
        kind: "loss" or "metric".
        given: The argument of ``compile``. What is no name, or not a known one, is returned as it is.
    """
    table = _losses.ALL_OBJECTS_DICT if kind == "loss" else _metrics.ALL_OBJECTS_DICT
    return table.get(given, given) if isinstance(given, str) else given


def wrapped_function(part: object) -> tuple[object, dict[str, object]]:
    """Return the function that a loss or a metric of Keras calls, or None, and its other arguments."""
    return getattr(part, "fn", getattr(part, "_fn", None)), getattr(part, "_fn_kwargs", {})


#: The classes of losses and metrics that call any function. The first has no public name.
WRAPPERS: tuple[type, ...] = (_losses.losses.LossFunctionWrapper, keras.metrics.MeanMetricWrapper)

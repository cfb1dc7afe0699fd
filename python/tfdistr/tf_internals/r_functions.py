"""R functions in a Keras model. Reticulate makes each a Python function, in one special module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

_MODULE = "rpytools.call"  # of reticulate 1.41 to 1.46


def function_of_r(model: keras.Model) -> str | None:
    """Find the place of an R function that a step of the model would call, such as "loss"; None without one.

    The arguments of ``compile`` have no public names.
    """
    losses = getattr(model, "_compile_loss", None)
    metrics = getattr(model, "_compile_metrics", None)
    parts: list[tuple[str, Any]] = [
        *_named("loss", getattr(losses, "_user_loss", None)),
        *_named("metric", getattr(metrics, "_user_metrics", None)),
        *_named("metric", getattr(metrics, "_user_weighted_metrics", None)),
        *((f"layer {layer.name}", layer) for layer in model._flatten_layers()),
    ]
    return next((name for name, part in parts if _calls_r(part)), None)


def _named(name: str, parts: Any) -> Iterator[tuple[str, Any]]:
    return ((name, part) for part in tf.nest.flatten(parts))


def _calls_r(part: Any) -> bool:
    if _is_of_r(part):
        return True
    own = list(getattr(part, "__dict__", {}).values())
    of_class = [
        value
        for cls in type(part).__mro__
        if not str(getattr(cls, "__module__", "")).startswith(("keras.", "tensorflow.", "builtins"))
        for value in vars(cls).values()
    ]
    return any(_is_of_r(value) for value in [*own, *of_class])


def _is_of_r(value: Any) -> bool:
    inner = [cell.cell_contents for cell in getattr(value, "__closure__", None) or () if _is_set(cell)]
    return getattr(value, "__module__", None) == _MODULE or any(
        getattr(part, "__module__", None) == _MODULE for part in inner if callable(part)
    )


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True

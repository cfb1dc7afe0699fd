"""Parts of a model that are not Keras's own, and what Keras keeps to itself."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as _context

from tfdistr.tf_internals.keras_loop import all_layers, overrides
from tfdistr.tf_internals.keras_step import overridden
from tfdistr.tf_internals.r_functions import function_of_r


def own_parts(model: keras.Model) -> list[str]:
    """Name the parts of a step that may compute something other than the mean of losses of rows.

    They are a ``train_step`` or a ``compute_loss`` that is not Keras's, losses that are not Keras's, and
    layers whose classes call ``add_loss`` and are not Keras's. (The arguments of ``compile`` have no public
    names.)
    """
    parts = [f"{name}()" for name in ("train_step", "compute_loss") if overrides(model, name)]
    losses = getattr(getattr(model, "_compile_loss", None), "_user_loss", None)
    given = [loss for loss in keras.tree.flatten(losses) if loss is not None and not _is_of_keras(loss)]
    parts += [f"the loss {_name_of(loss)!r}" for loss in given]
    parts += [f"the layer {layer.name!r}" for layer in all_layers(model) if _adds_loss(layer)]
    place = function_of_r(model)
    return parts or ([f"the R function {place}"] if place and "metric" not in place else [])


def _is_of_keras(part: Any) -> bool:
    if isinstance(part, str):
        return True
    function = getattr(part, "fn", part)  # Keras wraps functions
    function = function if hasattr(function, "__name__") else type(function)
    return (getattr(function, "__module__", None) or "").partition(".")[0] == "keras"


def _name_of(loss: Any) -> str:
    named = getattr(loss, "fn", loss)
    return str(getattr(named, "__name__", None) or getattr(loss, "name", type(loss).__name__))


def _adds_loss(layer: keras.Layer) -> bool:
    own = [cls for cls in type(layer).__mro__ if (cls.__module__ or "").partition(".")[0] != "keras"]
    codes = [getattr(value, "__code__", None) for cls in own for value in vars(cls).values()]
    return any("add_loss" in code.co_names for code in codes if code is not None)


@contextlib.contextmanager
def silent_batch_statistics(model: keras.Model) -> Iterator[None]:
    """Within the context, normalization uses its moving averages, not the statistics of the batch."""
    with contextlib.ExitStack() as stack:
        for layer in all_layers(model):
            if isinstance(layer, keras.layers.BatchNormalization):
                stack.enter_context(overridden(layer, "call", _in_inference(layer.call)))
        yield


def _in_inference(call: Any) -> Any:
    def in_inference(inputs: Any, *_: Any, mask: Any = None, **__: Any) -> Any:
        return call(inputs, training=False, mask=mask)

    return in_inference


def variables_of(model: keras.Model) -> list[Any]:
    """Return all variables that a step may change: of Keras, and those of TensorFlow that layers hold."""
    found = [*model.variables, *model.metrics_variables]
    for layer in (model, *all_layers(model)):
        for value in vars(layer).values():
            parts = value.values() if isinstance(value, dict) else value
            parts = parts if isinstance(value, dict | list | tuple) else [value]
            found += [part for part in parts if isinstance(part, tf.Variable)]
    return list({id(variable): variable for variable in found}.values())


@contextlib.contextmanager
def undisturbed_random_numbers() -> Iterator[None]:
    """Restore the random numbers of Python, NumPy and TensorFlow's eager operations after the context.

    (The seeds of TensorFlow's operations come from ``Context._rng``, which has no public name.)
    """
    context = _context.context()
    of_tensorflow = getattr(context, "_rng", None)
    state = random.getstate(), np.random.get_state(), of_tensorflow.getstate() if of_tensorflow else None
    try:
        yield
    finally:
        random.setstate(state[0])
        np.random.set_state(state[1])
        if of_tensorflow is not None:
            of_tensorflow.setstate(state[2])


# Whether a trace or the profiler runs in this process. In another process they do not run, and the callback
# would fail when it ends them.
TRACE_IN_PROCESS = frozenset({"_is_tracing", "_profiler_started"})


def flush_events(callback: keras.callbacks.TensorBoard) -> None:
    """Write the events that TensorFlow keeps for up to two minutes. The callback has no method for it."""
    for writer in callback._writers.values():
        writer.flush()

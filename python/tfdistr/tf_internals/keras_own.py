"""Parts of a model that are not Keras's own, and private state of Keras."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.saving import serialization_lib
from tensorflow.python.eager import context as _context

from tfdistr.tf_internals.keras_loop import all_layers, existing_seed_generator, layers_with_generators
from tfdistr.tf_internals.keras_step import overridden

_MODULE = "rpytools.call"  # of reticulate 1.41 to 1.46


def function_of_r(model: keras.Model) -> str | None:
    """Return the place of an R function that a step of the model would call, such as "loss", or None.

    The arguments of ``compile`` have no public names.
    """
    losses = getattr(model, "_compile_loss", None)
    metrics = getattr(model, "_compile_metrics", None)
    parts: list[tuple[str, Any]] = [
        *_with_places("loss", getattr(losses, "_user_loss", None)),
        *_with_places("metric", getattr(metrics, "_user_metrics", None)),
        *_with_places("metric", getattr(metrics, "_user_weighted_metrics", None)),
        *((f"layer {layer.name}", layer) for layer in model._flatten_layers()),
    ]
    return next((name for name, part in parts if _calls_r(part)), None)


def _with_places(name: str, parts: object) -> Iterator[tuple[str, object]]:
    return ((name, part) for part in tf.nest.flatten(parts))


def _calls_r(part: object) -> bool:
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


def _is_of_r(value: object) -> bool:
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


@contextlib.contextmanager
def silent_batch_statistics(model: keras.Model, *, synchronized: bool = True) -> Iterator[None]:
    """Make normalization use its moving averages, not batch statistics, within the context."""
    with contextlib.ExitStack() as stack:
        for layer in all_layers(model):
            kind = isinstance(layer, keras.layers.BatchNormalization)
            if kind and (synchronized or not layer.synchronized):
                stack.enter_context(overridden(layer, "call", _in_inference(layer.call)))
        yield


def _in_inference(call: Any) -> object:
    def in_inference(inputs: Any, *_: Any, mask: Any = None, **__: Any) -> object:
        return call(inputs, training=False, mask=mask)

    return in_inference


@contextlib.contextmanager
def observed_batch_statistics(model: keras.Model, used: Callable[[keras.Layer], None]) -> Iterator[None]:
    """Call ``used`` with each layer that normalizes with the rows of its batch, within the context.

    Keras passes ``training`` to ``call()``, whether it comes from the step, from a model around the layer, or
    from the call of the layer itself.
    """
    with contextlib.ExitStack() as stack:
        for layer in all_layers(model):
            if isinstance(layer, keras.layers.BatchNormalization) and not layer.synchronized:
                stack.enter_context(overridden(layer, "call", _observed(layer, used)))
        yield


def _observed(layer: keras.Layer, used: Callable[[keras.Layer], None]) -> object:
    own = layer.call

    def call(inputs: object, *args: object, **kwargs: object) -> Any:
        if kwargs.get("training", args[0] if args else None) and layer.trainable:
            used(layer)
        return own(inputs, *args, **kwargs)

    return call


@contextlib.contextmanager
def observed_draws(model: keras.Model, used: Callable[[keras.Layer], None]) -> Iterator[None]:
    """Call ``used`` with each layer that draws from a Keras generator, within the context.

    A draw from Keras's global generator is one of the layer whose ``call()`` runs, or of the model.
    """
    running = [model]
    with contextlib.ExitStack() as stack:

        def observe(generator: keras.random.SeedGenerator, layer: keras.Layer | None) -> None:
            own = generator.next

            def following(*args: object, **kwargs: object) -> Any:
                used(layer or running[-1])
                return own(*args, **kwargs)

            stack.enter_context(overridden(generator, "next", following))

        for layer, generator in layers_with_generators(model):
            observe(generator, layer)
        common = existing_seed_generator()
        if common is not None:
            observe(common, None)
            for layer in all_layers(model):
                stack.enter_context(overridden(layer, "call", _running(running, layer)))
        yield


def _running(running: list[keras.Layer], layer: keras.Layer) -> Any:
    own = layer.call

    def call(*args: object, **kwargs: object) -> Any:
        running.append(layer)
        try:
            return own(*args, **kwargs)
        finally:
            running.pop()

    return call


def variables_of(model: keras.Model) -> list[keras.Variable]:
    """Return all variables that a step may change: Keras variables, and TensorFlow variables of layers."""
    found = [*model.variables, *model.metrics_variables]
    for layer in (model, *all_layers(model)):
        for value in vars(layer).values():
            parts = value.values() if isinstance(value, dict) else value
            parts = parts if isinstance(value, dict | list | tuple) else [value]
            found += [part for part in parts if isinstance(part, tf.Variable)]
    return list({id(variable): variable for variable in found}.values())


def random_generators(model: keras.Model) -> list[tf.Variable]:
    """Return the states of the ``tf.random.Generator`` objects that a model and its layers hold."""
    held = [value for layer in (model, *all_layers(model)) for value in vars(layer).values()]
    return [value.state for value in held if isinstance(value, tf.random.Generator)]


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


def serialized(model: keras.Model) -> tuple[object, list[object]]:
    """Return the description of a model, and the objects and functions that have a name in it.

    The description has names only, and for a function not even its module. Keras looks for these names in
    the process that loads the model. (``serialization_lib._get_class_or_fn_config`` sees each object.)
    """
    objects: list[Any] = []
    describe = serialization_lib._get_class_or_fn_config

    def see(obj: object) -> Any:
        objects.append(obj)
        return describe(obj)

    with overridden(serialization_lib, "_get_class_or_fn_config", see), whole_configs():
        described = keras.saving.serialize_keras_object(model)
    return described, objects


def compile_arguments(model: keras.Model) -> dict[str, object]:
    """Return the arguments of Keras's ``compile()``. ``get_compile_config()`` only describes them."""
    return dict(model._compile_config.config) if hasattr(model, "_compile_config") else {}


@contextlib.contextmanager
def whole_configs() -> Iterator[None]:
    """Add the ``delta`` of a Huber loss, which Keras leaves out, to its configuration within the context."""
    huber = keras.losses.Huber
    usual = huber.get_config

    def get_config(loss: Any) -> dict[str, Any]:
        return {**usual(loss), **(loss._fn_kwargs if type(loss) is huber else {})}

    with overridden(huber, "get_config", get_config):
        yield

"""The parts of a model that may make its result depend on the number of workers."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.strategies.build import without_synchronization
from tfdistr.strategies.virtual.operations import random_operations
from tfdistr.training.model_state import map_inputs

#: The name of Keras's own generator in ``Parts.drawing``.
_NO_LAYER = "the model"


@dataclass(frozen=True)
class Parts:
    """The behaviours of a model in a training step, by the names of its layers.

    Attributes:
        silent: Layers that draw random numbers, and do not draw with ``training=False``.
        drawing: Layers that draw random numbers in another way, with Keras generators.
        tensorflow: The operations that draw with TensorFlow's global seed.
        normalizing: Layers that normalize with the rows of one worker.
        adding: Layers that call ``add_loss()``.
        sixteen_bits: Whether a layer computes with 16 bits.
    """

    silent: tuple[str, ...] = ()
    drawing: tuple[str, ...] = ()
    tensorflow: tuple[str, ...] = ()
    normalizing: tuple[str, ...] = ()
    adding: tuple[str, ...] = ()
    sixteen_bits: bool = False


def find_parts(model: keras.Model, inputs: object) -> Parts:
    """Trace the model once, as in training, and record what its layers do.

    Args:
        model: The model, built.
        inputs: Shapes and types of a batch of its inputs; see ``Training``.
    """
    noted = _Recorder()
    specs = map_inputs(inputs, lambda shape, dtype: tf.TensorSpec([2, *shape[1:]], dtype))
    operations: list[tuple[str, str]] = []
    with noted.watch(model):
        try:
            # AutoGraph, which Keras's training does without, would leave a file in an R session's folder.
            step = tf.function(lambda x: model(x, training=True), autograph=False)
            traced = step.get_concrete_function(specs)
            operations = random_operations(traced.graph)
        except Exception:  # a model with other inputs, such as ragged ones: record what can draw
            noted.draw = [layer.name for layer, _ in tf_internals.layers_with_generators(model)]
    holders = {layer.name for layer, _ in tf_internals.layers_with_generators(model) if can_be_silent(layer)}
    draw = list(dict.fromkeys(noted.draw))
    layers = [model, *tf_internals.all_layers(model)]
    return Parts(
        silent=tuple(name for name in draw if name in holders),
        drawing=tuple(name for name in draw if name not in holders),
        tensorflow=tuple(f"{kind} ({name})" for kind, name in operations),
        normalizing=tuple(layer.name for layer in without_synchronization(model) if layer.trainable),
        adding=tuple(dict.fromkeys(noted.add)),
        sixteen_bits=any("16" in str(layer.compute_dtype) for layer in layers),
    )


def can_be_silent(layer: keras.Layer) -> bool:
    """Return whether a layer has a mode for inference."""
    return "training" in inspect.signature(layer.call).parameters


class _Recorder:
    """A recorder of what layers do during a call of the model.

    Attributes:
        draw: Names of layers that have drawn random numbers.
        add: Names of layers that have added a loss.
    """

    def __init__(self) -> None:
        self.draw: list[str] = []
        self.add: list[str] = []
        self._running: list[str] = []

    @contextlib.contextmanager
    def watch(self, model: keras.Model) -> Iterator[None]:
        """Record what the layers of a model do within the context."""
        layers = [model, *tf_internals.all_layers(model)]
        owned = {id(generator): (layer, generator) for layer, generator in
                 tf_internals.layers_with_generators(model)}  # fmt: skip
        with contextlib.ExitStack() as stack:
            for layer in layers:
                stack.enter_context(tf_internals.overridden(layer, "call", self._call(layer)))
                stack.enter_context(tf_internals.overridden(layer, "add_loss", self._add_loss(layer)))
            for layer, generator in owned.values():
                stack.enter_context(tf_internals.overridden(generator, "next", self._next(layer, generator)))
            shared = tf_internals.global_seed_generator()
            stack.enter_context(tf_internals.overridden(shared, "next", self._next(None, shared)))
            yield

    def _call(self, layer: keras.Layer) -> Any:
        own = layer.call

        def call(*args: object, **kwargs: object) -> Any:
            self._running.append(layer.name)
            try:
                return own(*args, **kwargs)
            finally:
                self._running.pop()

        return call

    def _add_loss(self, layer: keras.Layer) -> Any:
        own = layer.add_loss

        def add_loss(*args: object, **kwargs: object) -> Any:
            self.add.append(layer.name)
            return own(*args, **kwargs)

        return add_loss

    def _next(self, layer: keras.Layer | None, generator: Any) -> Any:
        own = generator.next

        def following(*args: object, **kwargs: object) -> Any:
            running = self._running[-1] if self._running else _NO_LAYER
            self.draw.append(running if layer is None else layer.name)
            return own(*args, **kwargs)

        return following

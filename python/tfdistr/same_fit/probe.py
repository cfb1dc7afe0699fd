"""Copies of a model for one step, without parts that may make the result depend on the number of workers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import keras

#: The parts that a probe can be without.
DRAWS, ROWS, ADDED, SUM = "draws", "rows", "added", "sum"


class Probe:
    """A function that makes a model whose optimizer keeps the gradients of the first step, in any process.

    Args:
        model: Builds and compiles the model.
        without: ``DRAWS``: no layer draws random numbers. ``ROWS``: each BatchNormalization normalizes with
            the rows of all workers. ``ADDED``: the losses of ``add_loss()`` are divided by the number of
            rows. ``SUM``: the loss of ``compile()`` is divided by it.
    """

    def __init__(self, model: Callable[[], keras.Model], without: Collection[str]) -> None:
        self._model = model
        self._without = tuple(without)

    def __call__(self) -> keras.Model:
        """Return the model."""
        return probed(self._model(), self._without)


def probed(model: keras.Model, without: Collection[str]) -> keras.Model:
    """Change a model into one that ``Probe`` makes, and return it."""
    import keras

    from tfdistr import tf_internals
    from tfdistr.strategies.build import without_synchronization

    layers = [model, *tf_internals.all_layers(model)]
    if DRAWS in without:
        for layer in {id(layer): layer for layer, _ in tf_internals.layers_with_generators(model)}.values():
            _silence(layer)
    if ROWS in without:
        for layer in without_synchronization(model):
            layer.synchronized = True
    if ADDED in without:
        for layer in layers:
            _divide_added(layer)
    if SUM in without:
        _divide_loss(model)
    if model.optimizer is not None:
        # The first momentum is the gradient, times the learning rate. Other optimizers make small differences
        # of gradients large ones of weights.
        model.optimizer = keras.optimizers.SGD(1.0, momentum=0.9)
    return model


def _silence(layer: keras.Layer) -> None:
    """Make a layer compute as in inference."""
    from tfdistr.same_fit.parts import can_be_silent

    if not can_be_silent(layer):
        return
    signature, own = inspect.signature(layer.call), layer.call

    def call(*args: object, **kwargs: object) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.arguments["training"] = False
        return own(*bound.args, **bound.kwargs)

    layer.call = call


def _divide_added(layer: keras.Layer) -> None:
    """Divide the losses that a layer adds by the number of its rows."""
    own_call, own_add = layer.call, layer.add_loss
    rows: list[Any] = []

    def call(*args: object, **kwargs: object) -> Any:
        rows[:] = [_rows((args, kwargs))]
        return own_call(*args, **kwargs)

    def add_loss(loss: object) -> None:
        parts = loss if isinstance(loss, list | tuple) else [loss]
        own_add([part / rows[0] if rows else part for part in parts])

    layer.call, layer.add_loss = call, add_loss


def _divide_loss(model: keras.Model) -> None:
    """Divide the loss of a model, without the losses of its layers, by the number of rows."""
    own = model.compute_loss

    def compute_loss(
        x: object = None, y: object = None, y_pred: object = None, *args: object, **kwargs: object
    ) -> Any:
        import tensorflow as tf

        loss = own(x, y, y_pred, *args, **kwargs)
        added = tf.add_n([tf.zeros([], loss.dtype), *(tf.cast(part, loss.dtype) for part in model.losses)])
        return (loss - added) / tf.cast(_rows(y_pred), loss.dtype) + added

    model.compute_loss = compute_loss


def _rows(values: object) -> Any:
    """Return the number of rows of the first tensor, as float32."""
    import tensorflow as tf

    first = next(part for part in tf.nest.flatten(values) if hasattr(part, "shape"))
    return tf.cast(tf.shape(first)[0], tf.float32)

"""The states that stateful recurrent layers keep from batch to batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from tfdistr.tf_internals.keras_loop import all_layers


def stateful_layers(model: keras.Model) -> list[keras.layers.RNN]:
    """Return the recurrent layers of a model that keep their states."""
    layers = [layer for layer in all_layers(model) if isinstance(layer, keras.layers.RNN)]
    return [layer for layer in layers if layer.stateful and layer.states]


@contextlib.contextmanager
def states_of_rows(
    model: keras.Model, own: Callable[[tf.Tensor], tf.Tensor], gather: Callable[[tf.Tensor], tf.Tensor]
) -> Iterator[None]:
    """Make stateful layers use the states of a replica's rows only, within the context.

    A state has the rows of the whole batch, on every worker. (``RNN.states`` is set without Keras's tracking,
    which would take replaced states for new variables. ``RNN._expected_batch_size`` has no public name.)
    """
    layers = stateful_layers(model)
    before = [{name: vars(layer)[name] for name in ("states", "_expected_batch_size")} for layer in layers]
    for layer in layers:
        states = keras.tree.map_structure(lambda state: _State(state, own, gather), layer.states)
        vars(layer).update(states=states, _expected_batch_size=None)
    try:
        yield
    finally:
        for layer, attributes in zip(layers, before, strict=True):
            vars(layer).update(attributes)


class _State:
    """A replica's rows of a state, in place of its variable."""

    def __init__(
        self, variable: keras.Variable, own: Callable[..., object], gather: Callable[..., object]
    ) -> None:
        self._variable, self._own, self._gather = variable, own, gather

    def __tf_tensor__(self, dtype: tf.DType | None = None, name: str | None = None) -> tf.Tensor:
        rows = self._own(tf.convert_to_tensor(self._variable))
        return rows if dtype is None else tf.cast(rows, dtype)

    def assign(self, value: tf.Tensor) -> None:
        self._variable.assign(self._gather(value))

"""Embeddings that read the rows that a step needs, and not the table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfdistr.tf_internals.keras_loop import all_layers
from tfdistr.tf_internals.keras_step import overridden
from tfdistr.tf_internals.runtime import device_of


@contextlib.contextmanager
def row_lookups(model: keras.Model) -> Iterator[None]:
    """Within the context, the ``Embedding`` layers of a model read only the rows that they look up.

    Keras reads the variable and takes rows of it. Once a step has changed single rows of a variable,
    TensorFlow copies the variable whenever it is read, to protect the readers. The values and gradients are
    the same to the bit.
    """
    with contextlib.ExitStack() as stack:
        for layer in all_layers(model):
            # A regularizer reads the whole table in any case.
            usual = type(layer) is keras.layers.Embedding and "call" not in vars(layer)
            if usual and layer.embeddings_regularizer is None:
                stack.enter_context(overridden(layer, "call", _by_rows(layer)))
        yield


def _by_rows(layer: keras.layers.Embedding) -> Callable[[Any], Any]:
    keras_call = layer.call

    def call(inputs: Any) -> Any:
        table = _table_of(layer) if isinstance(inputs, tf.Tensor) else None
        if table is None:
            return keras_call(inputs)
        ids = inputs if inputs.dtype in (tf.int32, tf.int64) else tf.cast(inputs, tf.int32)
        # As in Keras, a negative number counts from the end of the table.
        ids = tf.where(ids < 0, ids + tf.constant(table.shape[0], ids.dtype), ids)
        return tf.cast(tf.gather(table, ids), layer.compute_dtype)

    return call


def _table_of(layer: keras.layers.Embedding) -> tf.Variable | None:
    """Return the variable that is the table of a layer; None if there is none on this worker's CPU."""
    table = layer.embeddings  # with LoRA, a tensor
    value = table.value if isinstance(table, keras.Variable) else None  # a tensor where Keras casts the table
    if isinstance(value, tf.distribute.DistributedValues):
        value = value.values[0] if len(value.values) == 1 else None
    if not isinstance(value, tf.Variable) or not hasattr(value, "sparse_read"):
        return None
    on_cpu = tf.DeviceSpec.from_string(device_of(value)).device_type == "CPU"
    return value if on_cpu else None

"""Updates of Keras optimizers with fewer passes over memory, and reads of embedding rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdistr.tf_internals.keras_loop import all_layers
from tfdistr.tf_internals.keras_optimizers import UpdateStep
from tfdistr.tf_internals.keras_step import overridden
from tfdistr.tf_internals.runtime import device_of


@contextlib.contextmanager
def row_lookups(model: keras.Model) -> Iterator[None]:
    """Make the ``Embedding`` layers of a model read only the rows that they look up, within the context.

    Keras reads the variable and takes rows of it. Once a step has changed single rows of a variable,
    TensorFlow copies the variable whenever it is read, to protect the readers. The values and gradients are
    bitwise identical.
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


# For these types the CPU kernels round like Keras's operations.
_TYPES = (tf.float32, tf.float64)


@contextlib.contextmanager
def fewer_passes(model: keras.Model, *, after_all_gradients: bool) -> Iterator[None]:
    """Make a traced step change the weights faster, with the same values, within the context.

    * ``Embedding`` layers read single rows; see ``row_lookups``.
    * ``SGD`` changes a variable on a CPU with one kernel. Keras calls a kernel for each product and each sum.
    * With ``after_all_gradients`` no variable changes before all gradients exist. Otherwise TensorFlow copies
      a variable whose old value is still needed: the gradient of a layer's inputs needs the layer's weights.

    The values are bitwise identical, with one exception: TensorFlow may merge factors of Keras's products,
    such as the learning rate and the factor of ``global_clipnorm``. Then the rounding differs.

    Args:
        model: A compiled model of one replica.
        after_all_gradients: For a worker without peers. A worker with peers was slower with it.
    """
    optimizer = getattr(model, "optimizer", None)
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # inside a LossScaleOptimizer
    with contextlib.ExitStack() as stack:
        if not model.jit_compile:
            stack.enter_context(row_lookups(model))
        if isinstance(optimizer, keras.optimizers.Optimizer) and after_all_gradients:
            stack.enter_context(overridden(optimizer, "apply", _together(optimizer.apply)))
        # A subclass or an override may have another step. XLA makes one kernel by itself.
        if type(inner) is keras.optimizers.SGD and "update_step" not in vars(inner) and not model.jit_compile:
            stack.enter_context(overridden(inner, "update_step", _in_one_kernel(inner)))
        yield


def _together(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an optimizer's ``apply`` so that it starts only when all gradients exist."""

    def apply_together(grads: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        grads = list(grads)
        if any(grad is not None for grad in grads):
            grads = tf.tuple(grads)
        return apply(grads, *args, **kwargs)

    return apply_together


def _in_one_kernel(optimizer: keras.optimizers.SGD) -> UpdateStep:
    """Replace ``optimizer.update_step`` by TensorFlow's kernels for it.

    (As in Keras, ``Optimizer._get_variable_index`` finds the momentum. ``Variable._value`` is its TensorFlow
    variable.)
    """
    keras_update = optimizer.update_step

    def update(gradient: Any, variable: Any, learning_rate: Any) -> None:
        on_cpu = tf.DeviceSpec.from_string(device_of(variable)).device_type == "CPU"
        if isinstance(gradient, tf.IndexedSlices) or variable.dtype not in _TYPES or not on_cpu:
            keras_update(gradient, variable, learning_rate)
            return
        gradient, rate, factor = (
            tf.cast(value, variable.dtype) for value in (gradient, learning_rate, optimizer.momentum)
        )
        if optimizer.momentum == 0:
            tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)
            return
        momentum = optimizer.momentums[optimizer._get_variable_index(variable)]._value
        if isinstance(momentum, tf.distribute.DistributedValues):
            (momentum,) = momentum.values
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle, accum=momentum.handle, lr=rate, grad=gradient, momentum=factor,
            use_nesterov=optimizer.nesterov,
        )  # fmt: skip

    return UpdateStep(update)

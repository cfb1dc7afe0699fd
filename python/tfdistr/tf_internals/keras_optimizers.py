"""The optimizers of a model, and changes to their application in a step."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdistr.tf_internals.keras_loop import all_layers
from tfdistr.tf_internals.keras_step import overridden
from tfdistr.tf_internals.runtime import device_of

#: A function ``apply(gradients, variables)`` that changes the weights with summed gradients.
Apply = Callable[[Sequence[Any], Any], Any]


def optimizers_of(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Return all optimizers that a model or its layers hold as attributes; the model's own comes first."""
    own = [] if getattr(model, "optimizer", None) is None else [model.optimizer]
    holders = [model, *all_layers(model)]
    found = [*own, *(part for holder in holders for value in vars(holder).values() for part in _parts(value))]
    inner = {id(part) for optimizer in found for part in with_inner(optimizer) if part is not optimizer}
    return list({id(optimizer): optimizer for optimizer in found if id(optimizer) not in inner}.values())


def _parts(value: Any) -> Iterator[keras.optimizers.Optimizer]:
    if isinstance(value, keras.optimizers.Optimizer):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            if isinstance(part, keras.optimizers.Optimizer):
                yield part


def with_inner(optimizer: Any) -> list[keras.optimizers.Optimizer]:
    """Return an optimizer and those in it: of a LossScaleOptimizer, or of a MultiOptimizer (Keras 3.14)."""
    inner = getattr(optimizer, "inner_optimizer", None)
    parts = [inner] if inner is not None else getattr(optimizer, "optimizers", ())
    return [optimizer, *(each for part in parts for each in with_inner(part))]


def trained_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Return the variables that a built optimizer trains. It has no public list of them."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return list(inner._trainable_variables)


class UpdateStep:
    """An ``update_step`` that replaces Keras's by a function with the same values."""

    def __init__(self, update: Callable[[Any, Any, Any], None]) -> None:
        self._update = update

    def __call__(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        self._update(gradient, variable, learning_rate)


def adds_rows(optimizer: keras.optimizers.Optimizer) -> bool:
    """Return whether only the sums of a sparse gradient's rows with the same index matter.

    Keras does not add these rows. Most optimizers square each, and clipping takes each by itself: the sum of
    squares is not the square of the sum.
    """
    scaled = type(optimizer) is keras.optimizers.LossScaleOptimizer
    inner = optimizer.inner_optimizer if scaled else optimizer
    own = vars(inner).get("update_step")
    if type(inner) is not keras.optimizers.SGD or not (own is None or isinstance(own, UpdateStep)):
        return False
    return not (inner.clipnorm or inner.global_clipnorm or inner.clipvalue)


@contextlib.contextmanager
def optimizer_hooks(
    model: keras.Model,
    scale: Callable[[Any], Any],
    apply: Callable[[keras.optimizers.Optimizer, Sequence[Any], Any, Apply], Any],
) -> Iterator[None]:
    """Make the optimizers of a model call ``scale`` and ``apply`` in a step, within the context.

    Their methods are overridden on the optimizer objects of this model, no others.

    Args:
        scale: Applied to a loss before the ``scale_loss`` of an optimizer.
        apply: Called in place of ``apply(gradients, variables)``, with the optimizer before these arguments,
            and after them the optimizer's own ``apply`` for gradients that are already summed.
    """
    with contextlib.ExitStack() as stack:
        for optimizer in optimizers_of(model):
            stack.enter_context(_summed(optimizer))
            stack.enter_context(overridden(optimizer, "apply", _apply_hook(optimizer, apply)))
            stack.enter_context(overridden(optimizer, "scale_loss", _scale_hook(optimizer, scale)))
        yield


def _apply_hook(optimizer: Any, apply: Callable[..., Any]) -> Callable[..., Any]:
    own = optimizer.apply

    def hook(grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        return apply(optimizer, list(grads), trainable_variables, own)

    return hook


def _scale_hook(optimizer: Any, scale: Callable[..., Any]) -> Callable[[Any], Any]:
    own = optimizer.scale_loss
    return lambda loss: own(scale(loss))


def apply_sums(optimizer: keras.optimizers.Optimizer, gradients: Sequence[Any], variables: Any) -> Any:
    """Change the weights with gradients that are already summed over the replicas."""
    with _summed(optimizer):
        return optimizer.apply(gradients, variables)


@contextlib.contextmanager
def _summed(optimizer: Any) -> Iterator[None]:
    """Make an optimizer accept gradients as sums over the replicas, within the context.

    Keras checks the gradients of each replica for overflow, accumulates and clips them, and sums them after
    that (``_all_reduce_sum_gradients``). A single worker does all that with the gradient of the whole batch.
    """
    with contextlib.ExitStack() as stack:
        for part in with_inner(optimizer):
            stack.enter_context(overridden(part, "_all_reduce_sum_gradients", lambda pairs: pairs))
        yield


# Keras's code that sums the gradients of replicas, or that makes an optimizer.
_BY_ITSELF = (keras.Optimizer._all_reduce_sum_gradients.__code__, keras.Optimizer.__init__.__code__)


def optimizer_at_work(error: BaseException | None = None) -> keras.optimizers.Optimizer | None:
    """Return the optimizer on the stack of this thread, or of an error, that sums its gradients by itself."""
    frame = inspect.currentframe()
    for raised, _ in traceback.walk_tb(error.__traceback__ if error else None):
        frame = raised
    while frame is not None and frame.f_code not in _BY_ITSELF:
        frame = frame.f_back
    return None if frame is None else frame.f_locals["self"]


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

"""The optimizers of a model, and changes to their application in a step."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdistr.tf_internals.keras_loop import all_layers, innermost
from tfdistr.tf_internals.keras_step import overridden
from tfdistr.tf_internals.runtime import device_of

#: A function ``apply(gradients, variables)`` that changes the weights with summed gradients.
Apply = Callable[[Sequence[Any], Any], object]


def optimizers_of(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Return all optimizers that a model or its layers hold as attributes; the model's own comes first."""
    own = [] if getattr(model, "optimizer", None) is None else [model.optimizer]
    holders = [model, *all_layers(model)]
    found = [*own, *(part for holder in holders for value in vars(holder).values() for part in _parts(value))]
    inner = {
        id(part) for optimizer in found for part in with_inner_optimizers(optimizer) if part is not optimizer
    }
    return list({id(optimizer): optimizer for optimizer in found if id(optimizer) not in inner}.values())


def _parts(value: object) -> Iterator[keras.optimizers.Optimizer]:
    if isinstance(value, keras.optimizers.Optimizer):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _parts(part)


def with_inner_optimizers(optimizer: object) -> list[keras.optimizers.Optimizer]:
    """Return an optimizer and those that it holds, as a LossScaleOptimizer and other wrappers do."""
    found = {id(optimizer): optimizer}
    left = [optimizer]
    while left:
        for value in vars(left.pop()).values():
            new = {id(part): part for part in _parts(value) if id(part) not in found}
            found |= new
            left += new.values()
    return list(found.values())


def trained_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Return the variables that a built optimizer trains. It has no public list of them."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return list(inner._trainable_variables)


class UpdateStep:
    """An ``update_step`` that replaces Keras's by a function with the same values."""

    def __init__(self, update: Callable[[Any, Any, Any], None]) -> None:
        self._update = update

    def __call__(self, gradient: object, variable: object, learning_rate: object) -> None:
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
    scale: Callable[[Any], object],
    apply: Callable[[keras.optimizers.Optimizer, Sequence[Any], Any, Apply], object],
) -> Iterator[None]:
    """Make the optimizers of a model call ``scale`` and ``apply`` in a step, within the context.

    Their methods are overridden on the optimizer objects of this model, no others. An optimizer may have an
    ``apply_gradients`` or an ``apply`` of its own, which clips gradients, for example.

    Args:
        scale: Applied to a loss before the ``scale_loss`` of an optimizer.
        apply: Called in place of ``apply_gradients`` or ``apply``, with the optimizer, gradients, variables,
            and the optimizer's own method for gradients that are already summed.
    """
    with contextlib.ExitStack() as stack:
        for optimizer in optimizers_of(model):
            stack.enter_context(_summed(optimizer))
            hooks = _Hooks(optimizer, scale, apply)
            for name in ("apply_gradients", "apply", "scale_loss"):
                stack.enter_context(overridden(optimizer, name, getattr(hooks, name)))
        yield


class _Hooks:
    """The methods that override those of an optimizer; see ``optimizer_hooks``."""

    def __init__(self, optimizer: Any, scale: Callable[[Any], Any], apply: Callable[..., Any]) -> None:
        self._optimizer, self._scale, self._apply = optimizer, scale, apply
        self._apply_gradients_of, self._apply_of = optimizer.apply_gradients, optimizer.apply
        self._scale_loss_of = optimizer.scale_loss
        # Replicas of one process have a thread each, one of which waits in the middle of it.
        self._within = threading.local()

    def scale_loss(self, loss: object) -> Any:
        return self._scale_loss_of(self._scale(loss))

    def apply_gradients(self, grads_and_vars: Any) -> Any:
        gradients, variables = zip(*grads_and_vars, strict=True)
        return self._apply(self._optimizer, as_tensors(gradients), list(variables), self._of_sums)

    def apply(self, grads: Sequence[object], trainable_variables: object = None) -> Any:
        if getattr(self._within, "apply_gradients", False):
            return self._apply_of(grads, trainable_variables)
        return self._apply(self._optimizer, as_tensors(grads), trainable_variables, self._apply_of)

    def _of_sums(self, gradients: Sequence[Any], variables: Any) -> object:
        self._within.apply_gradients = True
        try:
            return self._apply_gradients_of(list(zip(gradients, variables, strict=True)))
        finally:
            self._within.apply_gradients = False


def as_tensors(gradients: Sequence[object]) -> list[tf.Tensor]:
    """Return gradients, of which those that a step has kept in variables are read."""
    kept = (tf.Variable, keras.Variable)
    return [tf.convert_to_tensor(g) if isinstance(g, kept) else g for g in gradients]


def apply_sums(
    optimizer: keras.optimizers.Optimizer, own: Apply, gradients: Sequence[object], variables: object
) -> object:
    """Change the weights with ``own`` and gradients that are already summed over the replicas."""
    with _summed(optimizer):
        return own(gradients, variables)


@contextlib.contextmanager
def _summed(optimizer: object) -> Iterator[None]:
    """Make an optimizer accept gradients as sums over the replicas, within the context.

    Keras checks the gradients of each replica for overflow, accumulates and clips them, and sums them after
    that (``_all_reduce_sum_gradients``). A single worker does all that with the gradient of the whole batch.
    """
    with contextlib.ExitStack() as stack:
        for part in with_inner_optimizers(optimizer):
            stack.enter_context(overridden(part, "_all_reduce_sum_gradients", lambda pairs: pairs))
        yield


# Keras's code that sums the gradients of replicas, or that makes an optimizer.
_BY_ITSELF = (keras.Optimizer._all_reduce_sum_gradients.__code__, keras.Optimizer.__init__.__code__)


def optimizer_at_work(error: BaseException | None = None) -> keras.optimizers.Optimizer | None:
    """Return the optimizer on the stack of this thread, or of an error, that sums its gradients by itself."""
    raised = [frame for frame, _ in traceback.walk_tb(error.__traceback__)] if error else []
    frame = innermost(_BY_ITSELF, raised[-1] if raised else None)
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


def _by_rows(layer: keras.layers.Embedding) -> Callable[[Any], object]:
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


def _together(apply: Callable[..., object]) -> Callable[..., object]:
    """Wrap an optimizer's ``apply`` so that it starts only when all gradients exist."""

    def apply_together(grads: Sequence[object], *args: object, **kwargs: object) -> object:
        grads = as_tensors(grads)
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

"""How a Keras optimizer changes the weights, with fewer passes over memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdistr._private.keras_lookups import row_lookups
from tfdistr._private.keras_optimizers import UpdateStep
from tfdistr._private.keras_step import overridden
from tfdistr._private.variables import device_of

# For these types the CPU kernels round like Keras's operations.
_TYPES = (tf.float32, tf.float64)


@contextlib.contextmanager
def fewer_passes(model: keras.Model, *, after_all_gradients: bool) -> Iterator[None]:
    """Within the context, a traced step changes the weights faster, and to the same values.

    * ``Embedding`` layers read single rows; see ``row_lookups``.
    * ``SGD``, ``Adam`` and ``AdamW`` change a variable on a CPU with one kernel. Keras calls a kernel for
      each product and each sum.
    * With ``after_all_gradients`` no variable changes before all gradients exist. Otherwise TensorFlow copies
      a variable whose old value is still needed: the gradient of a layer's inputs needs the layer's weights.

    The values are the same to the bit, with two exceptions. TensorFlow may join factors of Keras's products,
    such as the learning rate and the factor of ``global_clipnorm``. And the kernel of Adam subtracts the
    decay rates from 1 in the type of the variable, as Keras does for its bias correction only.

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
        kernel = _KERNELS.get(type(inner))
        if kernel and "update_step" not in vars(inner) and not model.jit_compile:
            stack.enter_context(overridden(inner, "update_step", _in_one_kernel(inner, kernel)))
        yield


def _together(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an optimizer's ``apply`` so that it starts only when all gradients exist."""

    def apply_together(grads: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        grads = list(grads)
        if any(grad is not None for grad in grads):
            grads = tf.tuple(grads)
        return apply(grads, *args, **kwargs)

    return apply_together


def _in_one_kernel(optimizer: Any, kernel: Callable[[Any, Any, Any, Any], bool]) -> UpdateStep:
    """Replace ``optimizer.update_step`` by a kernel of TensorFlow, where there is one for it."""
    keras_update = optimizer.update_step

    def update(gradient: Any, variable: Any, learning_rate: Any) -> None:
        on_cpu = tf.DeviceSpec.from_string(device_of(variable)).device_type == "CPU"
        dense = not isinstance(gradient, tf.IndexedSlices)
        if not (dense and variable.dtype in _TYPES and on_cpu):
            keras_update(gradient, variable, learning_rate)
            return
        cast = tf.cast(gradient, variable.dtype), tf.cast(learning_rate, variable.dtype)
        if not kernel(optimizer, variable, *cast):
            keras_update(gradient, variable, learning_rate)

    return UpdateStep(update)


def _sgd(optimizer: keras.optimizers.SGD, variable: Any, gradient: tf.Tensor, rate: tf.Tensor) -> bool:
    if optimizer.momentum == 0:
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)
        return True
    tf.raw_ops.ResourceApplyKerasMomentum(
        var=variable.handle, accum=_slot(optimizer, optimizer.momentums, variable), lr=rate, grad=gradient,
        momentum=tf.cast(optimizer.momentum, variable.dtype), use_nesterov=optimizer.nesterov,
    )  # fmt: skip
    return True


def _adam(optimizer: keras.optimizers.Adam, variable: Any, gradient: tf.Tensor, rate: tf.Tensor) -> bool:
    """Change a variable as Adam does. (The moments have no public names: ``_momentums``, ``_velocities``.)"""
    names = ("_momentums", "_velocities")
    numbers = (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon)
    plain = all(isinstance(number, float | int) for number in numbers)
    if optimizer.amsgrad or not plain or not all(hasattr(optimizer, name) for name in names):
        return False
    momentum, velocity = (_slot(optimizer, getattr(optimizer, name), variable) for name in names)
    step = tf.cast(optimizer.iterations + 1, variable.dtype)
    betas = (optimizer.beta_1, optimizer.beta_2)
    # As Keras does, with a cast from 32 bits, also for variables of 64 bits.
    powers = [tf.cast(beta, variable.dtype) ** step for beta in betas]
    beta1, beta2, epsilon = (tf.constant(value, variable.dtype) for value in (*betas, optimizer.epsilon))
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle, m=momentum, v=velocity, lr=rate, grad=gradient, epsilon=epsilon,
        beta1=beta1, beta2=beta2, beta1_power=powers[0], beta2_power=powers[1],
    )  # fmt: skip
    return True


def _slot(optimizer: Any, slots: Sequence[Any], variable: Any) -> tf.Tensor:
    """Return the handle of the variable that an optimizer keeps for a weight.

    (As in Keras, ``Optimizer._get_variable_index`` finds it. ``Variable._value`` is the variable of
    TensorFlow that holds it.)
    """
    slot = slots[optimizer._get_variable_index(variable)]._value
    if isinstance(slot, tf.distribute.DistributedValues):
        (slot,) = slot.values
    return slot.handle


# TensorFlow's kernels for RMSprop and Adagrad need a variable more, or have no epsilon within the root.
_KERNELS: dict[type, Callable[[Any, Any, Any, Any], bool]] = {
    keras.optimizers.SGD: _sgd, keras.optimizers.Adam: _adam, keras.optimizers.AdamW: _adam,
}  # fmt: skip

"""The optimizers of a model, and changes to their application in a step."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from tfdistr.tf_internals.keras_loop import all_layers
from tfdistr.tf_internals.keras_step import overridden

#: A function ``apply(gradients, variables)`` that changes the weights with summed gradients.
Apply = Callable[[Sequence[Any], Any], Any]


def optimizers_of(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Return all optimizers that a model or its layers hold as attributes; the model's own comes first."""
    own = [] if getattr(model, "optimizer", None) is None else [model.optimizer]
    holders = [model, *all_layers(model)]
    found = [*own, *(part for holder in holders for value in vars(holder).values() for part in _parts(value))]
    inner = {id(part) for optimizer in found for part in _inner(optimizer) if part is not optimizer}
    return list({id(optimizer): optimizer for optimizer in found if id(optimizer) not in inner}.values())


def _parts(value: Any) -> Iterator[keras.optimizers.Optimizer]:
    if isinstance(value, keras.optimizers.Optimizer):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            if isinstance(part, keras.optimizers.Optimizer):
                yield part


def _inner(optimizer: Any) -> list[keras.optimizers.Optimizer]:
    """Return an optimizer and those in it: of a LossScaleOptimizer, or of a MultiOptimizer (Keras 3.14)."""
    inner = getattr(optimizer, "inner_optimizer", None)
    parts = [inner] if inner is not None else getattr(optimizer, "optimizers", ())
    return [optimizer, *(each for part in parts for each in _inner(part))]


def trained_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Return the variables that a built optimizer trains. It has no public list of them."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return list(inner._trainable_variables)


class UpdateStep:
    """An ``update_step`` that replaces Keras's and gives the same values.

    Args:
        update: Called with a gradient, its variable and the learning rate.
    """

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
        model: The model, with any number of optimizers.
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
        for part in _inner(optimizer):
            stack.enter_context(overridden(part, "_all_reduce_sum_gradients", lambda pairs: pairs))
        yield


# Keras's code that sums the gradients of replicas, or that makes an optimizer.
_BY_ITSELF = (keras.Optimizer._all_reduce_sum_gradients.__code__, keras.Optimizer.__init__.__code__)


def optimizer_at_work(error: BaseException | None = None) -> keras.optimizers.Optimizer | None:
    """Return the optimizer that sums its gradients by itself, or is being created; None if there is none.

    Args:
        error: The error whose stack is searched; by default the stack of this thread.
    """
    frame = inspect.currentframe()
    for raised, _ in traceback.walk_tb(error.__traceback__ if error else None):
        frame = raised
    while frame is not None and frame.f_code not in _BY_ITSELF:
        frame = frame.f_back
    return None if frame is None else frame.f_locals["self"]

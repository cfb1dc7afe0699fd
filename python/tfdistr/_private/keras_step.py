"""Keras's training step, which combines the losses and gradients of the workers."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.losses import loss as _losses


def keras_step(
    fn: Callable[..., Any], *, inline: bool = False
) -> tuple[keras.Model, Callable[..., Any]] | None:
    """Find the model and its step, if Keras passes ``fn``, a ``train_step`` or ``test_step``, to ``run``.

    A step with the decorator ``tf.function`` is compiled again, because its existing graph would not see
    changes around the step. With ``inline`` the step becomes a part of the graph around it.
    """
    if getattr(fn, "__name__", None) not in ("train_step", "test_step"):
        return None
    if not isinstance(fn, tf.types.experimental.PolymorphicFunction):
        owner = getattr(fn, "__self__", None)
        return (owner, fn) if isinstance(owner, keras.Model) else None
    bound = getattr(fn.python_function, "__wrapped__", None)
    owner = getattr(getattr(bound, "__self__", None), "target", None)
    if not isinstance(owner, keras.Model):
        return None
    own = inspect.getattr_static(owner, fn.__name__).python_function
    if inline and not tf.executing_eagerly():
        own = tf.autograph.to_graph(own)
    plain = types.MethodType(own, owner)
    return owner, plain if inline or tf.executing_eagerly() else tf.function(plain)


def keras_prediction(fn: Callable[..., Any]) -> keras.Model | None:
    """Find the model if ``fn`` is the function that Keras's ``predict`` passes to ``run``.

    It is a closure over the model, with the name ``one_step_on_data``.
    """
    if getattr(fn, "__name__", None) != "one_step_on_data":
        return None
    found = inspect.getclosurevars(inspect.unwrap(fn)).nonlocals.values()
    return next((value for value in found if isinstance(value, keras.Model)), None)


@contextlib.contextmanager
def optimizer_step(
    model: keras.Model,
    scale: Callable[[tf.Tensor], tf.Tensor],
    reduce: Callable[[Sequence[Any]], Sequence[Any]],
) -> Iterator[None]:
    """Within the context, apply ``scale`` to the loss and ``reduce`` to the gradients before all other steps.

    Keras checks the gradients of each worker for overflow, accumulates and clips them, and then sums them
    (``_all_reduce_sum_gradients``). A single worker does all that with the gradient of the whole batch, so
    here the sum comes first. The methods are overridden on this one optimizer object.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        yield
        return
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # inside a LossScaleOptimizer
    apply, scale_loss = optimizer.apply, optimizer.scale_loss

    def reduce_then_apply(grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        present = [g for g in grads if g is not None]
        reduced = iter(reduce(present) if present else ())
        return apply([None if g is None else next(reduced) for g in grads], trainable_variables)

    with (
        overridden(optimizer, "apply", reduce_then_apply),
        overridden(optimizer, "scale_loss", lambda loss: scale_loss(scale(loss))),
        overridden(inner, "_all_reduce_sum_gradients", lambda grads_and_vars: grads_and_vars),
    ):
        yield


@contextlib.contextmanager
def collected_gradients(
    model: keras.Model,
    scale: Callable[[tf.Tensor], tf.Tensor],
    collect: Callable[[Sequence[Any], Sequence[Any]], None],
) -> Iterator[None]:
    """Within the context, apply ``scale`` to the loss, and give gradients and weights to ``collect``.

    The optimizer does not run. Its weights, if a step does not name them, are ``_trainable_variables``.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        yield
        return
    scale_loss = optimizer.scale_loss

    def instead(grads: Sequence[Any], trainable_variables: Any = None) -> None:
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        collect(grads, inner._trainable_variables if trainable_variables is None else trainable_variables)

    with (
        overridden(optimizer, "apply", instead),
        overridden(optimizer, "scale_loss", lambda loss: scale_loss(scale(loss))),
    ):
        yield


@contextlib.contextmanager
def loss_shares(
    model: keras.Model,
    share: Callable[[tf.Tensor | None], tf.Tensor],
    weight: Callable[[], tf.Tensor],
) -> Iterator[None]:
    """Within the context, multiply the losses that are not the mean over all rows by ``share``.

    ``share`` gets the number by which Keras divides the sum of this worker's losses: the number of entries
    that no mask hides, or the sum of the weights; None if Keras does not divide. In a model with several
    outputs, each loss has a metric. Keras gives every batch the weight 1 in it, whatever its size. Here this
    worker's part of the batch has the weight ``weight()``. (``Model._compile_loss`` and its list of losses
    have no public names.)
    """
    compiled: Any = getattr(model, "_compile_loss", None)
    entries = getattr(compiled, "_flat_losses", None)
    if not entries:
        yield
        return

    def weighted(metric: keras.metrics.Metric) -> Callable[..., Any]:
        update = metric.update_state
        return lambda values, sample_weight=None: update(
            values, sample_weight=weight() if sample_weight is None else sample_weight
        )

    with contextlib.ExitStack() as stack:
        shared = [entry._replace(loss=_SharedLoss(entry.loss, share)) for entry in entries]
        stack.enter_context(overridden(compiled, "_flat_losses", shared))
        for metric in compiled.metrics:
            stack.enter_context(overridden(metric, "update_state", weighted(metric)))
        yield


class _SharedLoss:
    """A loss of a model, multiplied by this worker's share if the loss is not the mean over all rows."""

    def __init__(self, loss: keras.losses.Loss, share: Callable[[tf.Tensor | None], tf.Tensor]) -> None:
        self._loss = loss
        self._share = share

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        made: list[tf.Tensor] = []
        call = self._loss.call

        def observed(*args: Any, **kwargs: Any) -> Any:
            made.append(call(*args, **kwargs))
            return made[-1]

        with overridden(self._loss, "call", observed):
            value = self._loss(y_true, y_pred, sample_weight)
        reduction = self._loss.reduction
        if reduction in (None, "none") or made[0].shape.rank == 0:  # the loss computes a mean itself
            return value
        if reduction == "sum":
            return value * tf.cast(self._share(None), value.dtype)
        hidden = [getattr(tensor, "_keras_mask", None) for tensor in (y_pred, made[0])]
        masks = [tf.cast(mask, tf.float32) for mask in hidden if mask is not None]
        mask = tf.math.reduce_prod(tf.stack(masks), axis=0) if masks else None
        if reduction == "mean_with_sample_weight":
            weights = _losses.apply_mask(sample_weight, mask, "float32", reduction)
        else:
            weights = mask
        if weights is None:
            return value
        divisor = tf.reduce_sum(tf.cast(weights, tf.float32))
        return value * tf.cast(self._share(divisor), value.dtype)


@contextlib.contextmanager
def overridden(obj: Any, name: str, value: Any) -> Iterator[None]:
    """Within the context, the attribute ``name`` of this one object has another value."""
    own = vars(obj)
    before = own.get(name, own)  # the dictionary itself means: no attribute
    setattr(obj, name, value)
    try:
        yield
    finally:
        if before is own:
            delattr(obj, name)
        else:
            setattr(obj, name, before)

"""Keras's training step, which combines the losses and gradients of the workers."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterator
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
        with contextlib.suppress(Exception):  # TensorFlow runs what it cannot convert as it is
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
def loss_shares(
    model: keras.Model,
    share: Callable[[tf.Tensor | None], tf.Tensor],
    weight: Callable[[], tf.Tensor],
) -> Iterator[None]:
    """Multiply the losses that are not the mean over all rows by ``share``, within the context.

    ``share`` gets the number by which Keras divides the sum of this worker's losses: the number of entries
    that no mask hides, or the sum of the weights; None if Keras does not divide. A ``Mean`` of the model that
    is updated with one number, such as the loss of an output or of a custom step, gives every batch the
    weight 1, whatever its size. Here this worker's part of the batch has the weight ``weight()``.
    (``Model._compile_loss`` and its list of losses have no public names.)
    """
    compiled: Any = getattr(model, "_compile_loss", None)
    entries = getattr(compiled, "_flat_losses", None) or ()
    with contextlib.ExitStack() as stack:
        if entries:
            shared = [entry._replace(loss=_SharedLoss(entry.loss, share)) for entry in entries]
            stack.enter_context(overridden(compiled, "_flat_losses", shared))
        metrics = [*model.metrics, *(compiled.metrics if entries else ())]
        for metric in {id(metric): metric for metric in metrics}.values():
            if getattr(type(metric), "update_state", None) is keras.metrics.Mean.update_state:
                stack.enter_context(overridden(metric, "update_state", _weighted(metric, weight)))
        yield


def _weighted(metric: keras.metrics.Mean, weight: Callable[[], tf.Tensor]) -> Callable[..., Any]:
    """Wrap ``update_state`` so that one number counts as this worker's part of the batch."""
    update = metric.update_state

    def update_state(values: Any, sample_weight: Any = None) -> Any:
        if sample_weight is None and tf.convert_to_tensor(values).shape.rank == 0:
            sample_weight = weight()
        return update(values, sample_weight=sample_weight)

    return update_state


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

        # Not the loss itself: under MirroredStrategy another replica may run in the middle of it. (Keras's
        # objects are copied by their configuration.)
        loss = object.__new__(type(self._loss))
        vars(loss).update(vars(self._loss), call=observed)
        value = loss(y_true, y_pred, sample_weight)
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
    """Override the attribute ``name`` of this one object within the context."""
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

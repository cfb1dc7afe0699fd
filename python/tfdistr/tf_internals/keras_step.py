"""Keras's training step, which combines the losses and gradients of the workers."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.losses import loss as _losses
from keras.src.losses import losses as _losses_module
from keras.src.trainers.compile_utils import CompileMetrics as _CompileMetrics


def keras_step(
    fn: Callable[..., object], *, inline: bool = False
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


def keras_prediction(fn: Callable[..., object]) -> keras.Model | None:
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
    over_batch: OverBatch | None = None,
    rows: RowsOfAll | None = None,
) -> Iterator[None]:
    """Multiply the losses that are not the mean over all rows by ``share``, within the context.

    ``share`` gets the number by which Keras divides the sum of this worker's losses: the number of entries
    that no mask hides, or the sum of the weights; None if Keras does not divide. A ``Mean`` of the model that
    is updated with one number, such as the loss of an output or of a custom step, gives every batch the
    weight 1, whatever its size. Here this worker's part of the batch has the weight ``weight()``.

    Losses and metrics in ``over_batch`` get the rows of all workers, by ``rows``, instead.
    """
    with contextlib.ExitStack() as stack:

        def shared(number: int, loss: object) -> Any:
            if over_batch is None or rows is None or number not in over_batch.losses:
                return SharedLoss(loss, share)
            return _LossOfSums(loss, rows.add) if is_of_sums(loss) else _LossOverBatch(loss, rows.gather)

        stack.enter_context(replaced_losses(model, shared))
        for metric in all_metrics(model):
            if over_batch and rows and any(metric is other for other in over_batch.metrics):
                stack.enter_context(overridden(metric, "update_state", _of_all_rows(metric, rows.gather)))
            elif getattr(type(metric), "update_state", None) is keras.metrics.Mean.update_state:
                stack.enter_context(overridden(metric, "update_state", _weighted(metric, weight)))
        yield


class RowsOfAll(NamedTuple):
    """The exchanges of the rows of all workers: ``gather(tensor)``, or ``add(tensor)`` for their sum."""

    gather: Callable[[Any], Any]
    add: Callable[[Any], Any]


class OverBatch(NamedTuple):
    """The losses of ``compile()``, by their number, and the metrics that are functions of the whole batch."""

    losses: Collection[int]
    metrics: Collection[keras.metrics.Metric]


@contextlib.contextmanager
def replaced_losses(model: keras.Model, replace: Callable[[int, Any], object]) -> Iterator[None]:
    """Replace each loss of ``compile()`` by ``replace(number, loss)`` within the context.

    ``Model._compile_loss`` and its list of losses have no public names. They are replaced in this list, and
    nowhere where a callback would save them.
    """
    compiled: Any = getattr(model, "_compile_loss", None)
    entries = getattr(compiled, "_flat_losses", None)
    if not entries:
        yield
        return
    replaced = [entry._replace(loss=replace(n, entry.loss)) for n, entry in enumerate(entries)]
    with overridden(compiled, "_flat_losses", replaced):
        yield


def compiled_parts(model: keras.Model) -> tuple[object, ...]:
    """Return the objects that ``compile()`` has made, which have no public names."""
    names = ("_compile_loss", "_compile_metrics", "_loss_tracker")
    return tuple(getattr(model, name, None) for name in names)


def all_metrics(model: keras.Model) -> list[keras.metrics.Metric]:
    """Return the metrics of a model, each once; Keras holds those of ``compile()`` in a private class."""
    compiled: Any = getattr(model, "_compile_loss", None)
    inner = compiled.metrics if getattr(compiled, "_flat_losses", None) else ()
    found = [each for metric in (*model.metrics, *inner) for each in _inner_metrics(metric)]
    return list({id(metric): metric for metric in found}.values())


def _inner_metrics(metric: object) -> list[keras.metrics.Metric]:
    return list(metric.metrics) if isinstance(metric, _CompileMetrics) else [metric]


def _of_all_rows(metric: keras.metrics.Metric, gather: Callable[[Any], object]) -> Callable[..., object]:
    """Wrap ``update_state`` so that it gets the rows of all workers."""
    update = metric.update_state

    def update_state(*args: object, **kwargs: object) -> Any:
        args, kwargs = keras.tree.map_structure(lambda value: _gathered(value, gather), (args, kwargs))
        return update(*args, **kwargs)

    return update_state


# What Keras's layers attach to their outputs for the losses, without a public name.
_ATTACHED = ("_keras_mask", "_keras_logits")


def attached(tensor: object) -> list[tf.Tensor]:
    """Return the mask and the logits that Keras has attached to a tensor."""
    found = (getattr(tensor, name, None) for name in _ATTACHED)
    return [value for value in found if value is not None]


def with_attributes(tensor: object, change: Callable[[Any], object]) -> object:
    """Return ``change(tensor)`` with the mask and the logits of the tensor, changed alike."""
    changed = change(tensor)
    for name in _ATTACHED:
        value = getattr(tensor, name, None)
        if value is not None:
            setattr(changed, name, change(value))
    return changed


def _gathered(value: object, gather: Callable[[Any], object]) -> object:
    """Return the rows of all workers; numbers without rows stay as they are."""
    if value is None or not getattr(value, "shape", None):
        return value
    return with_attributes(value, gather)


class _LossOverBatch:
    """A loss of a model that gets the rows of all workers, so that each worker computes the whole loss."""

    def __init__(self, loss: keras.losses.Loss, gather: Callable[[Any], object]) -> None:
        self._loss, self._gather = loss, gather

    def __call__(self, y_true: object, y_pred: object, sample_weight: object = None) -> Any:
        given = (y_true, y_pred, sample_weight)
        return self._loss(*keras.tree.map_structure(lambda value: _gathered(value, self._gather), given))


def _weighted(metric: keras.metrics.Mean, weight: Callable[[], tf.Tensor]) -> Callable[..., Any]:
    """Wrap ``update_state`` so that one number counts as this worker's part of the batch."""
    update = metric.update_state

    def update_state(values: object, sample_weight: object = None) -> Any:
        if sample_weight is None and tf.convert_to_tensor(values).shape.rank == 0:
            sample_weight = weight()
        return update(values, sample_weight=sample_weight)

    return update_state


def is_of_sums(loss: object) -> bool:
    """Return whether a loss uses other rows by sums over the batch only: Keras's ``Dice`` and ``Tversky``."""
    return getattr(loss, "fn", None) in (keras.losses.dice, keras.losses.tversky)


class _LossOfSums:
    """A loss whose sums over the batch are sums over the rows of all workers."""

    def __init__(self, loss: keras.losses.Loss, add: Callable[[Any], object]) -> None:
        self._loss, self._add = loss, add

    def __call__(self, y_true: object, y_pred: object, sample_weight: object = None) -> Any:
        loss = object.__new__(type(self._loss))  # see SharedLoss
        vars(loss).update(vars(self._loss), fn=self._of_all_rows)
        return loss(y_true, y_pred, sample_weight)

    def _of_all_rows(self, *args: object, **kwargs: object) -> object:
        usual = _losses_module.ops.sum

        def sum_of_all(x: object, axis: object = None) -> object:
            total = usual(x, axis=axis)
            over_rows = axis is None or 0 in (axis if isinstance(axis, tuple | list) else (axis,))
            return self._add(total) if over_rows else total

        # The module of Keras's losses has no other name for the sum.
        with overridden(_losses_module.ops, "sum", sum_of_all):
            return self._loss.fn(*args, **kwargs)


class SharedLoss:
    """A loss of a model, multiplied by this worker's share if the loss is not the mean over all rows."""

    def __init__(self, loss: keras.losses.Loss, share: Callable[[tf.Tensor | None], tf.Tensor]) -> None:
        self._loss = loss
        self._share = share

    def __call__(self, y_true: object, y_pred: object, sample_weight: object = None) -> tf.Tensor:
        made: list[tf.Tensor] = []
        call = self._loss.call

        def observed(*args: object, **kwargs: object) -> object:
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
def overridden(obj: object, name: str, value: object) -> Iterator[None]:
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

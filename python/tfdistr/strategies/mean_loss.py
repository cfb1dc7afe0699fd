"""The warning about a custom step that applies the gradients of a mean over one replica's rows.

Keras's optimizers sum the gradients of the replicas. So the means of N replicas give N times the gradients
of one worker. The graph of a step shows how its loss was made; without ``tf.function`` there is none. A loss
that is scaled in any way is not reported, and neither are gradients that the step has changed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfdistr import tf_internals

log = logging.getLogger("tfdistr")

# Operations through which a value stays of the same size.
_SAME = {"Identity", "Cast", "Reshape", "Squeeze", "ExpandDims", "Neg"}
_SUMS = {"AddV2", "AddN"}
_LOSSES = {"SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits", "Square",
           "SquaredDifference", "Pow", "Abs"}  # fmt: skip
_LOGARITHMS = {"Log", "Log1p"}


class _Warned:
    already = False  # once in a process


@contextlib.contextmanager
def warn_of_means(replicas: int, kind: str, *, is_chief: bool = True) -> Iterator[None]:
    """Warn, once in the process, of a mean loss in a step that ``strategy.run`` runs within the context."""
    if replicas == 1 or not is_chief or _Warned.already:
        yield
        return
    of_tape, of_context = tf.GradientTape.gradient, tf.distribute.ReplicaContext.all_reduce
    of_means: dict[int, object] = {}

    def gradient(
        tape: tf.GradientTape, target: object, sources: object, *args: object, **kwargs: object
    ) -> Any:
        gradients = of_tape(tape, target, sources, *args, **kwargs)
        if not args and "output_gradients" not in kwargs and _is_mean_of_losses(target):
            of_means.update({id(part): part for part in tf.nest.flatten(gradients)})
        return gradients

    def all_reduce(context: object, reduce_op: object, value: object, options: object = None) -> Any:
        applied = of_means and any(id(part) in of_means for part in tf.nest.flatten(value))
        if applied and tf_internals.optimizer_at_work() and not _Warned.already:
            _Warned.already = True
            log.warning(
                "The loss of a step is the mean over its own rows, and the optimizer sums the gradients of "
                "%d %s: they are %d times those of one worker. Replace the mean by "
                "tfdistr.average_loss(losses).", replicas, kind, replicas,
            )  # fmt: skip
        return of_context(context, reduce_op, value, options)

    with (
        tf_internals.overridden(tf.GradientTape, "gradient", gradient),
        tf_internals.overridden(tf.distribute.ReplicaContext, "all_reduce", all_reduce),
    ):
        yield


def _is_mean_of_losses(target: Any) -> bool:
    """Return whether a target of a tape surely is a mean over rows that nothing has scaled."""
    if not tf.is_symbolic_tensor(target) or target.shape.rank != 0:
        return False
    operation = target.op
    if operation.type in _SAME | _SUMS:
        return any(map(_is_mean_of_losses, operation.inputs))
    return operation.type == "Mean" and _is_loss(operation.inputs[0])


def _is_loss(values: tf.Tensor) -> bool:
    """Return whether values surely are losses of rows that nothing has scaled."""
    operation = values.op
    if operation.type in _LOSSES:
        return True
    inputs = list(operation.inputs)
    if operation.type == "Mul":  # a label and a logarithm
        return any(i.op.type in _LOGARITHMS for i in inputs) and all(i.shape.rank for i in inputs)
    if operation.type in _SUMS:
        return any(i.op.type in _LOGARITHMS or _is_loss(i) for i in inputs)
    return operation.type in {*_SAME, "Mean"} and _is_loss(inputs[0])

"""A step that runs one operation after the other: its layers, its phases, and what is not finite."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.checkpoint.folder import Array
from tfdistr.replays.rerun import Rerun
from tfdistr.replays.tables import alone
from tfdistr.strategies.exact.exchange import NoPeers, ReplicaStep
from tfdistr.training.step_blocks import extended_of


@dataclass(frozen=True)
class OddOperation:
    """An operation whose result is not finite.

    Attributes:
        where: "forward", "backward" or "update".
        layer: The name of its layer; None outside of layers.
        odd: 1 if its result is infinite, 2 if it is NaN, or an error.
        before: The same of the results that it gets from other operations; 0 if they are finite.
        reason: Why it has raised an error.
    """

    where: str
    layer: str | None
    operation: str | None
    odd: int = 2
    before: int = 0
    reason: str | None = None


@dataclass
class Watch:
    """Sees the operations of an eager step, and records those whose results are not finite."""

    layers: list[str] = field(default_factory=list)
    phase: str = "forward"
    of_tensor: dict[int, str] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)  # otherwise another tensor could get the same id
    odd: dict[int, int] = field(default_factory=dict)  # results of operations that are not finite
    found: list[OddOperation] = field(default_factory=list)
    refusing: str | None = None  # the layer in which an operation raised an error
    outputs: list[tuple[str, Any]] = field(default_factory=list)  # of the layers, in the order of their calls

    def see(self, operation: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """See an operation with its inputs and results."""
        known = [self.of_tensor[id(tensor)] for tensor in inputs if id(tensor) in self.of_tensor]
        layer = self.layers[-1] if self.layers else (known[0] if known and self.phase != "forward" else None)
        if self.phase == "forward" and self.layers:
            self.kept += outputs
            self.of_tensor |= {id(tensor): self.layers[-1] for tensor in outputs}
        if any(tensor.dtype == tf.resource for tensor in inputs):
            return  # an operation that reads a weight computes nothing
        odd = {id(tensor): how for tensor in outputs if (how := _oddness(tensor))}
        if odd:
            # A constant of the code, such as a NaN, is no result of an operation.
            before = max((self.odd.get(id(tensor), 0) for tensor in inputs), default=0)
            self.found.append(OddOperation(self.phase, layer, operation, max(odd.values()), before))
            self.odd |= odd
            self.kept += outputs


def _is_float(tensor: object) -> bool:
    return isinstance(tensor, tf.Tensor) and tensor.dtype.is_floating


def is_finite_tensor(tensor: object) -> bool:
    """Return whether all numbers of a tensor are finite; true for tensors of other types."""
    return not _is_float(tensor) or bool(np.isfinite(np.asarray(tensor, np.float64)).all())


def _oddness(tensor: object) -> int:
    """Return 0 for a tensor of finite numbers, 1 if some are infinite, 2 if some are NaN."""
    if is_finite_tensor(tensor):
        return 0
    return 2 if np.isnan(np.asarray(tensor, np.float64)).any() else 1


@contextlib.contextmanager
def _in_layers(watch: Watch, model: keras.Model) -> Iterator[None]:
    """Tell a watch which layer computes, within the context."""
    with contextlib.ExitStack() as stack:
        for part in _parts(model):
            call = _within_layer(watch, part.name, part.call)
            stack.enter_context(tf_internals.overridden(part, "call", call))
        yield


def _parts(model: keras.Model) -> list[Any]:
    """Return the layers of a model, and the operations of functional models, such as ``keras.ops.log``."""
    layers = [model, *tf_internals.all_layers(model)]
    operations = [part for each in layers for part in getattr(each, "operations", ())]
    return list({id(part): part for part in (*layers, *operations)}.values())


def _within_layer(watch: Watch, name: str, own: Callable[..., object]) -> Callable[..., Any]:
    def call(*args: object, **kwargs: object) -> Any:
        watch.layers.append(name)
        try:
            outputs = own(*args, **kwargs)
            watch.outputs += [(name, output) for output in tf.nest.flatten(outputs)]
            return outputs
        except tf.errors.InvalidArgumentError:
            watch.refusing = watch.refusing or name
            raise
        finally:
            watch.layers.pop()

    return call


def odd_operations(made: Rerun, batch: object) -> list[OddOperation]:
    """Return the operations of a step on some rows whose results are not finite."""
    watch = Watch()
    with _in_layers(watch, made.model), tf_internals.on_eager_operation(watch.see):
        try:
            make_step(made, batch, watch, apply=True)
        except tf.errors.InvalidArgumentError as error:
            return [*watch.found, _refused(watch, error)]
    return watch.found


def _refused(watch: Watch, error: tf.errors.InvalidArgumentError) -> OddOperation:
    """Return the operation that raises an error alone, and gives NaN if XLA compiles it."""
    operation = _OPERATION.search(error.message)
    text = _PLACES.sub("", error.message).strip()
    return OddOperation("forward", watch.refusing, operation[1] if operation else None, reason=text)


#: The operation that an error names, and what the message has besides the reason.
_OPERATION = re.compile(r"\[Op:(\w+)\]")
_PLACES = re.compile(r"\{\{.*?\}\} |\[Op:.*", re.DOTALL)


def tensors_of(made: Rerun) -> list[tuple[str, Array]]:
    """Return the outputs of the layers of a step that runs uncompiled, then its losses and gradients."""
    watch, found = Watch(), list[Any]()
    with _in_layers(watch, made.model), contextlib.suppress(tf.errors.InvalidArgumentError):
        found = make_step(made, made.batch, watch, apply=False)
    named = [*watch.outputs, *(("", tensor) for tensor in found)]
    return [(name, np.asarray(tensor)) for name, tensor in named if isinstance(tensor, tf.Tensor)]


def make_step(made: Rerun, batch: object, watch: Watch, *, apply: bool) -> list[Any]:
    """Make the step of a model on some rows, one operation after the other; return losses and gradients."""
    made.rewind()
    model, found = made.model, list[Any]()
    extended = extended_of(model)
    known = tf_internals.keras_step(model.train_step)
    step = known[1] if known else model.train_step
    with contextlib.ExitStack() as stack:
        stack.enter_context(alone(model))
        if extended is not None:
            stack.enter_context(ReplicaStep(NoPeers(), None, 0, 1).entered())
        gradient = _noting_loss(found, _in_phase(watch, "backward", tf.GradientTape.gradient))
        stack.enter_context(tf_internals.overridden(tf.GradientTape, "gradient", gradient))
        for optimizer in tf_internals.optimizers_of(model):
            own = _in_phase(watch, "update", _alone(optimizer)) if apply else (lambda *given, **named: None)
            stack.enter_context(tf_internals.overridden(optimizer, "apply", _noting(found, own)))
        step(batch)
    return found


def _alone(optimizer: keras.optimizers.Optimizer) -> Callable[..., Any]:
    """Return the ``apply`` of an optimizer that has no other replicas."""
    own = optimizer.apply

    def apply(grads: Sequence[object], trainable_variables: object = None) -> Any:
        return tf_internals.apply_sums(optimizer, own, grads, trainable_variables)

    return apply


def _noting_loss(into: list[Any], own: Callable[..., object]) -> Callable[..., Any]:
    def gradient(tape: tf.GradientTape, target: object, *args: object, **kwargs: object) -> Any:
        into.extend(tf.nest.flatten(target))
        return own(tape, target, *args, **kwargs)

    return gradient


def _noting(into: list[Any], own: Callable[..., object]) -> Callable[..., Any]:
    def apply(grads: Sequence[object], *args: object, **kwargs: object) -> Any:
        into.extend(tf.convert_to_tensor(grad) for grad in grads if grad is not None)
        return own(grads, *args, **kwargs)

    return apply


def _in_phase(watch: Watch, phase: str, own: Callable[..., object]) -> Callable[..., Any]:
    def call(*args: object, **kwargs: object) -> Any:
        watch.phase, before = phase, watch.phase
        try:
            return own(*args, **kwargs)
        finally:
            watch.phase = before

    return call

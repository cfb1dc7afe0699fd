"""The cause of a step that is not finite: its first tensor that is no number, and the rows behind it."""

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
from tfdistr.checkpoint.trace import Trace
from tfdistr.checkpoint.variables import all_finite
from tfdistr.replays.rerun import Rerun
from tfdistr.replays.tables import alone, chosen, cut
from tfdistr.strategies.exact.exchange import NoPeers, ReplicaStep
from tfdistr.strategies.exact.loss_weighting import count_examples
from tfdistr.strategies.exact.row_wise import unproved_parts
from tfdistr.training.step_blocks import extended_of

_SHOWN = 5


@dataclass(frozen=True)
class Cause:
    """The first tensor of a step that is not finite.

    Attributes:
        where: "weights" (before the step), "inputs", "forward", "backward", "update" (by the optimizer), or
            "unknown" if the step is finite when its operations run one by one.
        layer: The name of the layer, of the weight or of the input; None outside of layers, as in a loss.
        operation: The TensorFlow operation that computed the tensor from finite ones, if one did.
        rows: The rows of the batch that cause it, from 0; None if the whole batch does.
        lines: The cause in words.
    """

    where: str
    layer: str | None = None
    operation: str | None = None
    rows: list[int] | None = None
    lines: list[str] = field(default_factory=list)


@dataclass
class _Watch:
    """The operations of an eager step, until one computes a number that is not finite from finite ones."""

    layers: list[str] = field(default_factory=list)
    phase: str = "forward"
    of_tensor: dict[int, str] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)  # otherwise another tensor could get the same id
    found: Cause | None = None
    refusing: str | None = None  # the layer in which an operation raised an error
    outputs: list[tuple[str, Any]] = field(default_factory=list)  # of the layers, in the order of their calls

    def see(self, operation: str, inputs: Sequence[object], outputs: Sequence[object]) -> None:
        known = [self.of_tensor[id(tensor)] for tensor in inputs if id(tensor) in self.of_tensor]
        layer = self.layers[-1] if self.layers else (known[0] if known and self.phase != "forward" else None)
        if self.phase == "forward" and self.layers:
            self.kept += outputs
            self.of_tensor |= {id(tensor): self.layers[-1] for tensor in outputs}
        given = [tensor for tensor in inputs if _is_float(tensor)]
        if self.found is None and given and all(map(_is_finite, given)) and not all(map(_is_finite, outputs)):
            self.found = Cause(self.phase, layer, operation)


def _is_float(tensor: object) -> bool:
    return isinstance(tensor, tf.Tensor) and tensor.dtype.is_floating


def _is_finite(tensor: object) -> bool:
    return not _is_float(tensor) or bool(np.isfinite(np.asarray(tensor, np.float64)).all())


def explain(trace: Trace, made: Rerun) -> Cause:
    """Find the cause of a step that is not finite. The model gets the state from before the step."""
    step = made.steps[-1].step
    found = _odd_weights(made) or _odd_inputs(made) or _first_operation(made)
    rows = found.rows
    if found.where in ("forward", "backward"):
        rows = _guilty_rows(made)
    made.rewind()
    lines = [_words(found), *found.lines, *_of_rows(made, found.where, rows), *_of_steps(trace, step)]
    return Cause(found.where, found.layer, found.operation, rows, lines)


def _odd_weights(made: Rerun) -> Cause | None:
    weights = made.weights(made.before)
    return next((Cause("weights", name) for name in weights if not all_finite(weights[name])), None)


def _odd_inputs(made: Rerun) -> Cause | None:
    x, y, weights = keras.utils.unpack_x_y_sample_weight(made.batch)
    for name, part in (("x", x), ("y", y), ("sample_weight", weights)):
        for path, tensor in keras.tree.flatten_with_path(part):
            if isinstance(tensor, tf.Tensor) and not _is_finite(tensor):
                axes = tuple(range(1, tensor.shape.rank))
                odd = ~np.isfinite(np.asarray(tensor, np.float64)).all(axis=axes)
                return Cause("inputs", "/".join(map(str, (name, *path))), rows=np.flatnonzero(odd).tolist())
    return None


def _first_operation(made: Rerun) -> Cause:
    watch = _Watch()
    with _in_layers(watch, made.model), tf_internals.on_eager_operation(watch.see):
        try:
            _step(made, made.batch, watch, apply=True)
        except tf.errors.InvalidArgumentError as error:
            return watch.found or _refused(watch, error)
    return watch.found or Cause("unknown")


@contextlib.contextmanager
def _in_layers(watch: _Watch, model: keras.Model) -> Iterator[None]:
    """Tell a watch which layer computes, within the context."""
    with contextlib.ExitStack() as stack:
        for part in _parts(model):
            call = _within_layer(watch, part.name, part.call)
            stack.enter_context(tf_internals.overridden(part, "call", call))
        yield


def tensors_of(made: Rerun) -> list[tuple[str, Array]]:
    """Return the outputs of the layers of a step that runs uncompiled, then its losses and gradients."""
    watch, found = _Watch(), list[Any]()
    with _in_layers(watch, made.model), contextlib.suppress(tf.errors.InvalidArgumentError):
        found = _step(made, made.batch, watch, apply=False)
    named = [*watch.outputs, *(("", tensor) for tensor in found)]
    return [(name, np.asarray(tensor)) for name, tensor in named if isinstance(tensor, tf.Tensor)]


def _refused(watch: _Watch, error: tf.errors.InvalidArgumentError) -> Cause:
    """Return the cause of an operation that raises an error alone, and gives NaN if XLA compiles it."""
    operation = _OPERATION.search(error.message)
    text = _PLACES.sub("", error.message).strip()
    return Cause("forward", watch.refusing, operation[1] if operation else None, lines=[text])


#: The operation that an error names, and what the message has besides the reason.
_OPERATION = re.compile(r"\[Op:(\w+)\]")
_PLACES = re.compile(r"\{\{.*?\}\} |\[Op:.*", re.DOTALL)


def _parts(model: keras.Model) -> list[Any]:
    """Return the layers of a model, and the operations of functional models, such as ``keras.ops.log``."""
    layers = tf_internals.all_layers(model)
    operations = [part for each in (model, *layers) for part in getattr(each, "operations", ())]
    return list({id(part): part for part in (*layers, *operations)}.values())


def _within_layer(watch: _Watch, name: str, own: Callable[..., object]) -> Callable[..., Any]:
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


def _step(made: Rerun, batch: object, watch: _Watch, *, apply: bool) -> list[Any]:
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


def _in_phase(watch: _Watch, phase: str, own: Callable[..., object]) -> Callable[..., Any]:
    def call(*args: object, **kwargs: object) -> Any:
        watch.phase, before = phase, watch.phase
        try:
            return own(*args, **kwargs)
        finally:
            watch.phase = before

    return call


def _guilty_rows(made: Rerun) -> list[int] | None:
    """Return the rows whose loss or gradients are not finite alone, by halving; None for the whole batch."""
    count = int(count_examples(made.batch))

    def search(first: int, end: int) -> Iterator[int]:
        if _makes_finite_step(made, cut(made.batch, first, end)):
            return
        if end - first == 1:
            yield first
            return
        middle = (first + end) // 2
        yield from search(first, middle)
        yield from search(middle, end)

    found = list(search(0, count))
    normal = keras.layers.BatchNormalization
    mixes = any(isinstance(layer, normal) for layer in tf_internals.all_layers(made.model))
    if mixes or unproved_parts(made.model):
        found = _guilty_among_others(made, found, count)
    return found or None


def _guilty_among_others(made: Rerun, found: list[int], count: int) -> list[int]:
    """Return the rows without which the batch is finite, and with each of which it is not.

    Where rows are used together, a row alone may be not finite though it is none of the cause.
    """

    def is_finite(rows: list[int]) -> bool:
        return _makes_finite_step(made, chosen(made.batch, rows))

    rest = [row for row in range(count) if row not in found]
    if not rest or not is_finite(rest):
        return []
    return [row for row in found if not is_finite(sorted([*rest, row]))]


def _makes_finite_step(made: Rerun, batch: object) -> bool:
    try:
        return all(map(_is_finite, _step(made, batch, _Watch(), apply=False)))
    except tf.errors.InvalidArgumentError:
        return False


def _words(found: Cause) -> str:
    if found.where == "weights":
        return f"The weight {found.layer} was not finite before the step: look at an earlier step."
    if found.where == "inputs":
        return f"The input {found.layer} has values that are not finite."
    if found.where == "unknown":
        return "All tensors are finite if the operations run one by one: the compiled step differs."
    place = "the loss" if found.layer is None else f"the layer {found.layer!r}"
    where = {"forward": "in the forward pass", "backward": "in the backward pass", "update": "in the update"}
    if found.where == "update":
        place = "the optimizer"
    return f"The first tensor that is not finite: {found.operation} of {place}, {where[found.where]}."


def _of_rows(made: Rerun, where: str, rows: list[int] | None) -> list[str]:
    if where in ("weights", "unknown", "update"):
        return []
    if rows is None:
        return ["The rows of the batch are not independent: the whole batch causes it."]
    indices = None if made.indices is None else [made.indices[row] for row in rows]
    found = of_rows(rows, indices, [made.places[row] for row in rows] if made.places else [])
    return [f"Caused by row{'s' * (len(rows) > 1)} {found}."]


def of_rows(
    rows: Sequence[int], indices: Sequence[int] | None, places: Sequence[tuple[str, int | None]] = ()
) -> str:
    """Return rows of a batch in words, with their indices in the data and their places in files."""
    index = "" if indices is None else f", {_listed(indices)} of the data"
    files = [file if row is None else f"row {row} of {file}" for file, row in places]
    index += f", {_listed(files)}" if files else ""
    return f"{_listed(rows)} of the batch{index} (counted from 0)"


def _listed(numbers: Sequence[object]) -> str:
    return ", ".join(map(str, numbers[:_SHOWN])) + (", ..." if len(numbers) > _SHOWN else "")


def _of_steps(trace: Trace, step: int) -> list[str]:
    before = trace.before(step)
    norms = ", ".join("none" if made.norm is None else f"{made.norm:.3g}" for made in before)
    rates = {made.rate for made in before if made.rate is not None}
    if not before:
        return ["It is the first step of the run."]
    between = (
        " to ".join(f"{rate:.3g}" for rate in sorted({min(rates), max(rates)})) if rates else "not known"
    )
    return [f"Gradient norms of the steps before: {norms}. Learning rate: {between}."]

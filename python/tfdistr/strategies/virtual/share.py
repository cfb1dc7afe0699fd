"""The step of one virtual worker: a function of its rows that changes nothing.

The optimizers do not run in it: its results are gradients and new values of variables. A step may read
weights after an optimizer has changed them, as in a generative adversarial network. It is cut there: the
optimizer changes them when the gradients of all shares are summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError
from tfdistr.strategies.exact.exchange import ROWS_OF_ALL, ReplicaStep, scale, sums_from_tapes
from tfdistr.strategies.exact.loss_weighting import (
    MeanOverExamples,
    at_least_one,
    count_examples,
)
from tfdistr.strategies.exact.replica import OneReplica
from tfdistr.strategies.exact.step_logs import MetricResults
from tfdistr.strategies.exact.tape_sums import current_graph


@dataclass
class Update:
    """A change of weights by an optimizer.

    Attributes:
        apply: The optimizer's method that changes them.
        gradients: The gradients of this share, weighted; None where a weight has no gradient.
        weights: The Keras variables of the gradients.
    """

    optimizer: Any
    apply: tf_internals.Apply
    gradients: list[Any]
    weights: list[Any]


def sent_gradients(updates: Sequence[Update], dtype: tf.DType | None) -> tuple[list[Any], list[Any]]:
    """Return the gradients of updates as they are sent: tensors to sum, and tensors to concatenate.

    The latter are the values and the indices of the gradients of embeddings.
    """
    dense, slices = [], []
    for gradient in (g for update in updates for g in update.gradients if g is not None):
        if isinstance(gradient, tf.IndexedSlices):
            slices += [_cast(gradient.values, dtype), gradient.indices]
        else:
            dense.append(_cast(gradient, dtype))
    return dense, slices


def _cast(gradient: tf.Tensor, dtype: tf.DType | None) -> tf.Tensor:
    return tf.cast(gradient, dtype) if dtype and gradient.dtype.is_floating else gradient


@dataclass
class ShareExchange:
    """An exchange of a share with the others in its step: values to sum, or updates that are due.

    Attributes:
        values: The values of the share that are summed over all shares.
        sums: The sums; for updates a tensor without a value, which marks their place.
        slices: The values of the share that are concatenated.
        gathered: The concatenated values; none for updates.
        updates: The updates, whose gradients the values are.
    """

    values: list[tf.Tensor]
    sums: list[tf.Tensor]
    slices: list[tf.Tensor] = field(default_factory=list)
    gathered: list[tf.Tensor] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)

    @property
    def sent(self) -> list[tf.Tensor]:
        """All values of the share."""
        return [*self.values, *self.slices]

    @property
    def received(self) -> list[tf.Tensor]:
        """All values that the share gets."""
        return [*self.sums, *self.gathered]


@dataclass
class ShareLogs:
    """The logs of the step of a share.

    Attributes:
        value: The logs, or predictions.
        are_metrics: Whether these are the values of all metrics.
        results: The results of metrics among them.
        sums: The names of those that are sums over rows.
    """

    value: Any = None
    are_metrics: bool = False
    results: MetricResults = field(default_factory=MetricResults)
    sums: set[str] = field(default_factory=set)


@dataclass
class ShareStep:
    """The results of the step of a virtual worker.

    Attributes:
        updates: The updates that are due at the end of the step.
        changed: Keras variables that the step would change.
        values: The new values of these variables; for a variable that sums, the part of this share.
        draws: The number of draws of each random number generator, by its id.
        examples: Number of rows of the share.
        weight: The part of the global batch that this share has.
        bad: Whether the loss is not finite.
        losses: This share's part of the loss of the whole batch, if a trace gets it.
        exchanges: The exchanges of the share, in order.
        common: The ids of variables that all shares change alike: those of metrics of the whole batch.
    """

    updates: list[Update] = field(default_factory=list)
    changed: list[Any] = field(default_factory=list)
    values: list[tf.Tensor] = field(default_factory=list)
    draws: dict[int, int] = field(default_factory=dict)
    logs: ShareLogs = field(default_factory=ShareLogs)
    examples: Any = None
    weight: Any = None
    bad: Any = None
    losses: list[tf.Tensor] = field(default_factory=list)
    exchanges: list[ShareExchange] = field(default_factory=list)
    common: set[int] = field(default_factory=set)

    def aggregation(self, variable: Any) -> str:
        """Return how the values of a variable of all shares are combined: "sum", "mean" or "none"."""
        return "none" if id(variable) in self.common else str(variable.aggregation)

    @property
    def summed(self) -> list[tuple[Any, tf.Tensor]]:
        """The changed variables whose values are summed, all but generators, with these values."""
        pairs = zip(self.changed, self.values, strict=True)
        return [(variable, value) for variable, value in pairs if not tf_internals.is_seed(variable)]


class Share:
    """One virtual worker in a step. Its attributes are those of ``loss_weighting.Replica``.

    Args:
        rows: Number of rows of the share, int32.
        all_rows: Number of rows of the global batch, float32.
        may_be_empty: Whether the share may have no rows.
        may_weigh_loss: Whether the step is Keras's own.
    """

    gradient_dtype = None

    def __init__(
        self,
        rows: tf.Tensor,
        all_rows: tf.Tensor,
        may_be_empty: bool,
        index: tf.Tensor,
        count: int,
        may_weigh_loss: bool,
    ) -> None:
        self.rows = rows
        self._count = count
        self._is_last = tf.equal(index, count - 1)
        self.known_rows: tf.Tensor | None = all_rows
        self.present = tf.sign(tf.cast(rows, tf.float32)) if may_be_empty else None
        self.replica_reductions = 0
        self.step = ShareStep()
        self._graph = current_graph()
        self.mean = MeanOverExamples(
            self, self, rows, may_weigh_loss=may_weigh_loss, can_exchange=lambda: self.can_wait
        )

    @property
    def can_wait(self) -> bool:
        """Return True if the step can be cut here: it is being traced, outside of branches and loops."""
        return self._graph is not None and current_graph() is self._graph

    def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
        """Scale a loss, and note whether it is finite."""
        bad = (self.rows > 0) & ~tf.reduce_all(tf.math.is_finite(loss))
        self.step.bad = bad if self.step.bad is None else self.step.bad | bad
        return self.mean.scale_loss(loss)

    def cut_for_updates(self, variable: Any, dtype: tf.DType | None) -> None:
        """Cut the step where it reads ``variable``, which an optimizer is to change before."""
        if not self.can_wait:
            raise ArgumentError(
                "With virtual workers, a step can read weights after optimizer.apply() in the step itself "
                "only: not in a TensorFlow loop or branch, and not with run_eagerly=True.",
                received=f"a use of {variable.path} after apply() in such a place",
                fix="Read it before, or in a callback; or train without virtual_workers.",
            )
        dense, slices = sent_gradients(self.step.updates, dtype)
        place = tf.compat.v1.placeholder(tf.int32, [])
        self.step.exchanges.append(ShareExchange(dense, [place], slices, updates=self.step.updates))
        self.step.updates = []

    def check_update(self, optimizer: Any) -> None:
        """Refuse an update in a branch or a loop, whose gradients do not leave it."""
        if current_graph() is not self._graph:
            raise ArgumentError(
                "With virtual workers, a step can apply an optimizer in the step itself only: not in a "
                "TensorFlow loop or branch.",
                received=f"apply() of the optimizer {optimizer.name!r} in such a place",
                fix="Accumulate gradients with the optimizer's gradient_accumulation_steps; or train without "
                "virtual_workers.",
            )

    def part(self, gradient: object, weight: object) -> Any:
        """Return this share's part of the gradient of a weight.

        A gradient of the whole batch, from a tape, is the part of the last share. All shares have it, but a
        step may add random numbers to it, of which each share draws its own.
        """
        if gradient is None:
            return None
        if self.mean.tapes is None or not self.mean.tapes.has(weight):
            return self.without_stand_in(self.mean.weigh([gradient])[0])
        if isinstance(gradient, tf.IndexedSlices):
            rows = tf.where(self._is_last, tf.shape(gradient.indices)[0], 0)
            return tf.IndexedSlices(gradient.values[:rows], gradient.indices[:rows], gradient.dense_shape)
        return tf.where(self._is_last, gradient, tf.zeros_like(gradient))

    def without_stand_in(self, value: Any) -> Any:
        """Return a value, but zero if the share has no rows, where a row of zeros takes their place."""
        if value is None or self.present is None or not value.dtype.is_floating:
            return value
        return scale(value, self.present)

    def all_reduce(
        self,
        op: tf.distribute.ReduceOp,
        tensors: Sequence[object],
        dtype: tf.DType | None = None,
        *,
        add_rows: bool = False,
    ) -> list[Any]:
        """Stop for the sums over all shares."""
        if not self.can_wait:
            raise ArgumentError(
                "With virtual workers, a model may exchange values between replicas in its own step only: "
                "not in a TensorFlow loop or branch, and not with run_eagerly=True.",
                received="an all-reduce in such a place",
                fix="Move the layer, such as BatchNormalization(synchronized=True), out of it.",
            )
        self.replica_reductions += 1
        is_mean = op == tf.distribute.ReduceOp.MEAN
        rows = [isinstance(tensor, tf.IndexedSlices) and not is_mean for tensor in tensors]
        given = [t if kept else tf.convert_to_tensor(t) for t, kept in zip(tensors, rows, strict=True)]
        values = [self.without_stand_in(value) for value in given]
        places = [_place_for(value) for value in values]
        exchange = ShareExchange([], [])
        for value, place in zip(values, places, strict=True):
            if isinstance(value, tf.IndexedSlices):
                exchange.slices += [value.values, value.indices]
                exchange.gathered += [place.values, place.indices]
            else:
                exchange.values.append(value)
                exchange.sums.append(place)
        self.step.exchanges.append(exchange)
        return [place / self._count for place in places] if is_mean else places


def _place_for(value: Any) -> Any:
    """Return the place of a sum over the shares, or of the rows of all shares."""
    if not isinstance(value, tf.IndexedSlices):
        return tf.compat.v1.placeholder(value.dtype, value.shape)
    rows = tf.compat.v1.placeholder(value.values.dtype, [None, *value.values.shape[1:]])
    return tf.IndexedSlices(rows, tf.compat.v1.placeholder(value.indices.dtype, [None]), value.dense_shape)


def share_step(
    extended: OneReplica,
    model: keras.Model,
    fn: Any,
    data: Any,
    others: Sequence[Any],
    virtual_worker: tf.Tensor,
    all_rows: tf.Tensor,
    may_be_empty: bool,
) -> ShareStep:
    """Make the step ``fn`` of a model on the rows of one virtual worker, without changing anything."""
    _refuse_states(model)
    of_keras = not tf_internals.overrides(model, "train_step")
    count = extended.virtual.count
    share = Share(count_examples(data), all_rows, may_be_empty, virtual_worker, count, of_keras)
    step = share.step

    def collect(optimizer: Any, gradients: Sequence[Any], variables: Any, own: tf_internals.Apply) -> None:
        weights = tf_internals.trained_variables(optimizer) if variables is None else list(variables)
        share.check_update(optimizer)
        if len(weights) == len(gradients):  # else Keras's own error says what is wrong
            gradients = [share.part(g, weight) for g, weight in zip(gradients, weights, strict=True)]
        step.updates.append(Update(optimizer, own, list(gradients), weights))
        scope.awaited |= {id(weight) for weight in weights}

    def cut(variable: object) -> None:
        share.cut_for_updates(variable, extended.gradient_dtype)
        scope.awaited = set()

    optimizers = tf_internals.optimizers_of(model)
    protected = [*model.trainable_variables, *(v for each in optimizers for v in each.variables)]
    known = extended.known.of(model)
    over_batch, step.logs.sums = known.over_batch, known.logs_of(extended.step.kind).sums
    step.common = {id(v) for metric in over_batch.metrics for v in metric.variables}
    scope = tf_internals.ShareScope(virtual_worker, protected, _refuse_change, cut, step.common)
    replica = ReplicaStep(share.mean, share.present, virtual_worker, count)
    with (
        extended.within(share=share, reported_replicas=1),
        scope,
        tf_internals.optimizer_hooks(model, share.scale_loss, collect),
        tf_internals.loss_shares(model, share.mean.share, share.mean.weight, over_batch, ROWS_OF_ALL),
        sums_from_tapes(),
        tf.device(extended.worker_devices[0]),
        replica.entered(),
    ):
        batch = at_least_one(data, share.rows) if may_be_empty else data
        if trace := extended.step.trace:
            trace.begin_rows()
        with step.logs.results.noted(model):
            step.logs.value = fn(batch, *others)
        scope.awaited = set()
        _read_results(model, share, scope)
        _read_losses(share, trace.take_loss() if trace else [])
    return step


def _read_losses(share: Share, losses: Sequence[Any]) -> None:
    share.step.losses = [share.without_stand_in(loss) for loss in share.mean.weigh(losses)]


def _read_results(model: keras.Model, share: Share, scope: tf_internals.ShareScope) -> None:
    step = share.step
    step.logs.are_metrics = tf_internals.logs_are_metrics(model, step.logs.value)
    step.examples = share.rows
    step.changed = list(scope.changed)
    step.values = [tf.convert_to_tensor(scope.get_current_value(v), v.dtype) for v in step.changed]
    _check_sums(scope, step)
    step.draws = {id(v): scope.changes[id(v)] for v in step.changed if tf_internals.is_seed(v)}
    step.weight = share.mean.weight()


def _check_sums(scope: Any, step: ShareStep) -> None:
    """Refuse metrics that do not add: their parts cannot be combined."""
    for variable, value in step.summed:
        begun = scope.begun(variable)
        if step.aggregation(variable) == "sum" and not tf.executing_eagerly() and not _adds(value, begun):
            raise ArgumentError(
                "With virtual workers, the variables of metrics must be sums over the rows: the shares are "
                "added.",
                received=f"an update of {variable.path} that is no addition",
                fix="Compute it from sums in result(), or in a callback after the epoch.",
            )


def _adds(value: tf.Tensor, begun: tf.Tensor) -> bool:
    """Return whether a tensor is a tensor from the beginning plus something."""
    if value is begun:
        return True
    operation = value.op
    if operation.type in ("Identity", "Cast"):
        return _adds(operation.inputs[0], begun)
    return operation.type in ("Add", "AddV2", "AddN") and any(_adds(part, begun) for part in operation.inputs)


def _refuse_states(model: keras.Model) -> None:
    layers = tf_internals.stateful_layers(model)
    if layers:
        raise ArgumentError(
            "With virtual workers, a recurrent layer cannot keep its states from batch to batch.",
            received=f"stateful=True of the layer {layers[0].name!r}",
            fix="Train without virtual_workers.",
        )


def _refuse_change(variable: Any) -> None:
    raise ArgumentError(
        "With virtual workers, only the model's optimizers may change its weights.",
        received=f"a step that changes {variable.path} by itself",
        fix="Train without virtual_workers.",
    )

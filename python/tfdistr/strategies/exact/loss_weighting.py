"""A step of Keras's ``fit`` on this worker's rows; all steps add up to a step on the global batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.collectives.interface import Collectives
from tfdistr.strategies.exact.exchange import ROWS_OF_ALL, ReplicaStep, scale
from tfdistr.strategies.exact.replica import OneReplica


@contextlib.contextmanager
def exact_step(
    extended: OneReplica, collectives: Collectives, model: keras.Model, data: Any
) -> Iterator[tuple[Any, ReplicaStep]]:
    """Run one step on a local batch, which may be shorter than the batches of the peers, or empty.

    Args:
        extended: Runs the replica.
        collectives: Exchanges tensors with the peers.
        model: The model that makes the step.
        data: The local batch.

    Yields:
        The batch for the step (``data``, or one row of zeros if ``data`` has no rows: the stand-in row), and
        the step of the replica, within which the model must run.
    """
    examples = count_examples(data)
    may_be_empty = tf.get_static_value(examples) is None and not extended.step.never_empty
    state = extended.own_metrics(model) if may_be_empty and model.built else []
    variables = [extended.local_variable(v.value) for v in state]
    own = tf_internals.overrides(model, "train_step")
    if own or tf_internals.overrides(model, "test_step"):
        extended.rows_of_step.assign(tf.cast(examples, tf.int64))
    mean = MeanOverExamples(extended, collectives, examples, may_weigh_loss=not own)

    losses: list[tf.Tensor] = []

    def scale_loss(loss: tf.Tensor) -> tf.Tensor:
        extended.watch.see(loss, examples > 0, is_first=not losses)
        losses.append(loss)
        return mean.scale_loss(loss)

    def apply(optimizer: Any, *arguments: Any) -> Any:
        return mean.apply(*arguments, add_rows=tf_internals.adds_rows(optimizer))

    present = tf.sign(tf.cast(examples, tf.float32)) if may_be_empty else None
    with (
        # The step sees one replica, so that Keras divides nothing by the number of replicas.
        extended.within(present=present, reported_replicas=1),
        without_stand_in(variables, examples),
        tf_internals.row_lookups(model),
        tf_internals.optimizer_hooks(model, scale_loss, apply),
        tf_internals.loss_shares(model, mean.share, mean.weight, extended.over_batch(model), ROWS_OF_ALL),
    ):
        batch = at_least_one(data, examples) if may_be_empty else data
        yield batch, ReplicaStep(mean, present, extended.worker_index, extended.num_workers)


def replica_of(extended: OneReplica, collectives: Collectives, data: Any) -> ReplicaStep:
    """Return the step of this worker's replica on a local batch of a prediction, which may be empty."""
    mean = MeanOverExamples(extended, collectives, count_examples(data))
    return ReplicaStep(mean, None, extended.worker_index, extended.num_workers)


@contextlib.contextmanager
def without_stand_in(variables: Sequence[tf.Variable], examples: tf.Tensor) -> Iterator[None]:
    """Protect the ``variables`` of metrics from the stand-in row of an empty batch, within the context.

    Args:
        variables: The variables of this replica; none if the replica surely has examples.
        examples: Number of examples of this replica.
    """
    before = [tf.identity(variable.read_value()) for variable in variables]
    yield

    def restore() -> tf.Tensor:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        return tf.constant(True)

    if variables:
        tf.cond(examples > 0, lambda: tf.constant(False), restore)


class Replica(Protocol):
    """The state of a replica; ``OneReplica`` explains the fields."""

    @property
    def known_rows(self) -> tf.Tensor | None: ...
    @property
    def present(self) -> tf.Tensor | None: ...

    gradient_dtype: tf.DType | None
    replica_reductions: int


class Peers(Protocol):
    """Sums tensors over all replicas."""

    def all_reduce(
        self,
        op: tf.distribute.ReduceOp,
        tensors: Sequence[Any],
        dtype: tf.DType | None = None,
        *,
        add_rows: bool = False,
    ) -> list[Any]: ...


class MeanOverExamples:
    """The gradient of the mean over the global batch, from each worker's mean over its rows.

    The weight of a worker is its number of rows. In Keras's own ``train_step`` the loss is weighted before
    the gradient is taken in two cases. First, the number of rows of the global batch is known. Second, the
    model communicates in its forward pass (synchronized BatchNormalization); the number of rows then needs
    an all-reduce of its own. Otherwise the gradients are weighted, and the number of rows is all-reduced
    together with them. The user's ``train_step`` may scale one loss and apply another, or one loss twice,
    so its gradients are always weighted.

    Args:
        replica: The state of the replica.
        peers: Sums tensors over the replicas.
        examples: Number of rows of the replica.
        may_weigh_loss: Whether the step is Keras's own.
    """

    def __init__(
        self, replica: Replica, peers: Peers, examples: tf.Tensor, *, may_weigh_loss: bool = False
    ) -> None:
        self._replica = replica
        self._peers = peers
        # In float32 a quotient would take half of their digits from models in float64.
        self._count = tf.cast(examples, tf.float64)
        self._graph = current_graph()
        self._total: tf.Tensor | None = None
        self._may_weigh_loss = may_weigh_loss
        self._reductions_before = replica.replica_reductions
        #: Whether the loss, and so each gradient, is weighted.
        self.loss_is_weighted = False

    def weight(self) -> tf.Tensor:
        """This worker's part of the examples of the global batch."""
        total = self._replica.known_rows
        if total is None:
            total = self._sum_of_rows()
        return self._count / tf.cast(total, tf.float64)

    def _sum_of_rows(self) -> tf.Tensor:
        if current_graph() is not self._graph:  # in a branch or a loop, whose tensors cannot be used outside
            return self._sum([self._count])[0]
        if self._total is None:
            (self._total,) = self._sum([self._count])
        return self._total

    def share(self, divisor: tf.Tensor | None) -> tf.Tensor:
        """Return the factor that turns a loss over this worker's rows into its share of the global loss.

        Args:
            divisor: The number by which the loss over these rows was divided; None for a sum.
        """
        divided = tf.ones([], tf.float64) if divisor is None else tf.cast(divisor, tf.float64)
        parts = tf.stack([self._count, divided * tf.sign(self._count)])
        (totals,) = self._sum([tf.stop_gradient(parts)])
        own = tf.math.divide_no_nan(totals[0], self._count)
        return own if divisor is None else own * tf.math.divide_no_nan(parts[1], totals[1])

    def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
        """Weight the loss of Keras's own step, if the weight is known or the model has communicated."""
        silent = self._replica.replica_reductions == self._reductions_before
        if not self._may_weigh_loss or (silent and self._replica.known_rows is None):
            return loss
        self.loss_is_weighted = True
        return loss * tf.cast(self.weight(), loss.dtype)

    def apply(
        self, gradients: Sequence[Any], variables: Any, own: tf_internals.Apply, *, add_rows: bool = False
    ) -> Any:
        """Change the weights of an optimizer as one worker would; see ``optimizer_hooks``.

        Args:
            gradients: The gradients, or None.
            variables: Their variables.
            own: The optimizer's own ``apply``.
            add_rows: Whether the optimizer needs only the sums of the rows of sparse gradients.
        """
        present = [gradient for gradient in gradients if gradient is not None]
        reduced = iter(self._reduce(present, add_rows) if present else ())
        return own([None if gradient is None else next(reduced) for gradient in gradients], variables)

    def weigh(self, gradients: Sequence[Any]) -> list[Any]:
        """Weight gradients, unless their loss was weighted."""
        if self.loss_is_weighted:
            return list(gradients)
        return [None if gradient is None else scale(gradient, self.weight()) for gradient in gradients]

    def _reduce(self, gradients: Sequence[Any], add_rows: bool) -> list[Any]:
        """Sum the gradients over the workers, each with its weight."""
        if self.loss_is_weighted:
            if self._replica.present is not None:  # the gradient of no rows may be NaN
                gradients = [scale(g, self._replica.present) for g in gradients]
            return self._sum(gradients, self._replica.gradient_dtype, add_rows)
        if self._replica.known_rows is not None:
            weighted = [scale(g, self.weight()) for g in gradients]
            return self._sum(weighted, self._replica.gradient_dtype, add_rows)
        scaled = [scale(g, self._count) for g in gradients]
        if self._replica.gradient_dtype is not None:  # it has too few digits for counts
            (total,) = self._sum([tf.cast(self._count, tf.float32)])
            sums = self._sum(scaled, self._replica.gradient_dtype, add_rows)
        else:
            together = [*scaled, tf.cast(self._count, tf.float32)]  # in one collective
            *sums, total = self._sum(together, add_rows=add_rows)
        return [scale(g, 1.0 / tf.cast(total, tf.float64)) for g in sums]

    def _sum(
        self, tensors: Sequence[Any], dtype: tf.DType | None = None, add_rows: bool = False
    ) -> list[Any]:
        return self._peers.all_reduce(tf.distribute.ReduceOp.SUM, tensors, dtype, add_rows=add_rows)


def current_graph() -> Any:
    """Return the graph that is being traced; None in eager mode."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def at_least_one(data: Any, examples: tf.Tensor) -> Any:
    """Return ``data``, or one row of zeros if it has no rows: some kernels (convolutions) fail on no rows."""

    def pad(value: Any) -> Any:
        if isinstance(value, tf.RaggedTensor):
            splits = value.row_splits
            padded = tf.cond(examples > 0, lambda: splits, lambda: tf.zeros([2], splits.dtype))
            return tf.RaggedTensor.from_row_splits(value.values, padded, validate=False)
        if isinstance(value, tf.SparseTensor):
            rows = tf.maximum(value.dense_shape[:1], 1)
            return tf.SparseTensor(value.indices, value.values, tf.concat([rows, value.dense_shape[1:]], 0))
        if not isinstance(value, tf.Tensor):
            return value
        row = tf.concat([[1], tf.shape(value)[1:]], 0)
        padded = tf.cond(examples > 0, lambda: value, lambda: tf.zeros(row, value.dtype))
        return tf.ensure_shape(padded, value.shape)

    return tf.nest.map_structure(pad, data)


def count_examples(data: Any) -> tf.Tensor:
    """Return the number of rows of a batch, a scalar of type int32."""
    first = next(part for part in tf.nest.flatten(data) if part is not None)
    if isinstance(first, tf.RaggedTensor):
        return tf.cast(first.nrows(), tf.int32)
    if isinstance(first, tf.SparseTensor):
        return tf.cast(first.dense_shape[0], tf.int32)
    return tf.shape(first)[0]

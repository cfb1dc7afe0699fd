"""A step of Keras's ``fit`` on this worker's rows; all steps add up to a step on the global batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.strategies.exact.exchange import ROWS_OF_ALL, ReplicaStep, scale, sums_from_tapes
from tfdistr.strategies.exact.replica import OneReplica
from tfdistr.strategies.exact.step_logs import flat_logs
from tfdistr.strategies.exact.step_trace import StepTrace
from tfdistr.strategies.exact.tape_sums import OfSum, TapeSums, current_graph

#: Runs a function on the replica, with a batch.
Run = Callable[[Callable[..., object], object], object]


@contextlib.contextmanager
def exact_step(
    extended: OneReplica, model: keras.Model, data: object
) -> Iterator[tuple[object, ReplicaStep]]:
    """Run one step on a local batch: yield the batch to use, a stand-in row for none, and the step."""
    examples = count_examples(data)
    may_be_empty = tf.get_static_value(examples) is None and not extended.step.never_empty
    state = extended.own_metrics(model) if may_be_empty and model.built else []
    variables = list(map(extended.local_variable, state))
    own = tf_internals.overrides(model, "train_step")
    if own or tf_internals.overrides(model, "test_step"):
        extended.rows_of_step.assign(tf.cast(examples, tf.int64))
    # A step of the user's own may use the norm of a gradient, which depends on its rows.
    optimizers = tf_internals.optimizers_of(model)
    add_rows = not own and all(tf_internals.adds_rows(optimizer) for optimizer in optimizers)
    assert extended.collectives is not None
    mean = MeanOverExamples(
        extended,
        extended.collectives,
        examples,
        may_weigh_loss=not own,
        add_rows=add_rows,
        trace=extended.step.trace,
    )

    losses: list[tf.Tensor] = []

    def scale_loss(loss: tf.Tensor) -> tf.Tensor:
        extended.checks.loss.see(loss, examples > 0, is_first=not losses)
        losses.append(loss)
        return mean.scale_loss(loss)

    over_batch = extended.known.of(model).over_batch
    present = tf.sign(tf.cast(examples, tf.float32)) if may_be_empty else None
    replica = ReplicaStep(mean, present, extended.worker_index, extended.num_workers)
    with (
        # The step sees one replica, so that Keras divides nothing by the number of replicas.
        extended.within(present=present, reported_replicas=1),
        without_stand_in(variables, examples),
        tf_internals.row_lookups(model),
        tf_internals.optimizer_hooks(model, scale_loss, mean.apply),
        tf_internals.loss_shares(model, mean.share, mean.weight, over_batch, ROWS_OF_ALL),
        sums_from_tapes(),
        own_states(model, replica, examples),
    ):
        yield at_least_one(data, examples) if may_be_empty else data, replica


def run_exactly(
    extended: OneReplica, model: keras.Model, fn: Callable[..., object], data: object, run: Run
) -> object:
    """Return the logs of a step on the global batch."""
    with exact_step(extended, model, data) as (batch, replica):
        return flat_logs(run(replica.enclose(fn), batch))


def own_states(
    model: keras.Model, replica: ReplicaStep, examples: tf.Tensor
) -> contextlib.AbstractContextManager[None]:
    """Make stateful layers use the states of this replica's examples within the context."""
    return tf_internals.states_of_rows(model, lambda state: replica.rows_of(state, examples), replica.gather)


def predict_exactly(
    extended: OneReplica, model: keras.Model, fn: Callable[..., object], data: object, run: Run
) -> object:
    """Return the outputs of a prediction for this worker's rows of the global batch, or for no rows."""
    examples = count_examples(data)
    assert extended.collectives is not None
    mean = MeanOverExamples(extended, extended.collectives, examples)
    replica = ReplicaStep(mean, None, extended.worker_index, extended.num_workers)
    with own_states(model, replica, examples):
        return run(replica.enclose(fn), data)


@contextlib.contextmanager
def without_stand_in(variables: Sequence[tf.Variable], examples: tf.Tensor) -> Iterator[None]:
    """Protect the ``variables`` of metrics from the stand-in row of an empty batch, within the context."""
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
        tensors: Sequence[object],
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
    so its gradients are always weighted. They are summed when a tape gives them (``TapeSums``), and other
    gradients when an optimizer applies them.

    Args:
        may_weigh_loss: Whether the step is Keras's own.
        add_rows: Whether the optimizers need only the sums of the rows of sparse gradients.
        can_exchange: Returns whether the peers can sum gradients where a tape gives them.
        trace: Gets the loss of the global batch (``StepTrace``); None if nobody asks for it.

    Attributes:
        tapes: The gradients that are summed when a tape gives them; None for Keras's own step.
    """

    def __init__(
        self,
        replica: Replica,
        peers: Peers,
        examples: tf.Tensor,
        *,
        may_weigh_loss: bool = False,
        add_rows: bool = False,
        can_exchange: Callable[[], bool] = lambda: True,
        trace: StepTrace | None = None,
    ) -> None:
        self._trace = trace
        self._replica = replica
        self._peers = peers
        # In float32 a quotient would take half of their digits from models in float64.
        self._count = tf.cast(examples, tf.float64)
        self._graph = current_graph()
        self._total: tf.Tensor | None = None
        self._may_weigh_loss = may_weigh_loss
        self._add_rows = add_rows
        self._reductions_before = replica.replica_reductions
        self.tapes: TapeSums | None = None
        if not may_weigh_loss:
            self.tapes = TapeSums(self._reduce, examples, self._as_of_mean, can_exchange)
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
        """Return the factor that turns a loss, divided by ``divisor``, into its share of the global loss."""
        divided = tf.ones([], tf.float64) if divisor is None else tf.cast(divisor, tf.float64)
        parts = tf.stack([self._count, divided * tf.sign(self._count)])
        (totals,) = self._sum([tf.stop_gradient(parts)])
        own = tf.math.divide_no_nan(totals[0], self._count)
        return own if divisor is None else own * tf.math.divide_no_nan(parts[1], totals[1])

    def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
        """Weight the loss of Keras's own step, if the weight is known or the model has communicated.

        A loss without a reduction is a vector. Its gradient is that of its sum, which needs no weight.
        """
        silent = self._replica.replica_reductions == self._reductions_before
        is_vector = bool(loss.shape.rank)
        if not self._may_weigh_loss or (silent and self._replica.known_rows is None and not is_vector):
            return loss
        self.loss_is_weighted = True
        if is_vector:
            return loss
        return loss * tf.cast(self.weight(), loss.dtype)

    def apply(self, optimizer: Any, gradients: Sequence[Any], variables: Any, own: tf_internals.Apply) -> Any:
        """Change the weights of an optimizer as one worker would; see ``optimizer_hooks``."""
        trained = tf_internals.trained_variables(optimizer) if variables is None else list(variables)
        if len(trained) != len(gradients):  # Keras's own error says what is wrong
            return own(gradients, variables)
        summed = [self.tapes is not None and self.tapes.has(variable) for variable in trained]
        left = [g for g, done in zip(gradients, summed, strict=True) if g is not None and not done]
        sums = iter(self._reduce(left) if left else ())
        pairs = zip(gradients, summed, strict=True)
        return own([g if done or g is None else next(sums) for g, done in pairs], variables)

    def weigh(self, gradients: Sequence[object]) -> list[Any]:
        """Weight gradients, unless their loss was weighted."""
        if self.loss_is_weighted:
            return list(gradients)
        return [None if gradient is None else scale(gradient, self.weight()) for gradient in gradients]

    def _as_of_mean(self, gradients: Sequence[object], of_sum: OfSum) -> list[tf.Tensor]:
        """Return gradients that ``weigh`` turns into parts of the gradient of the whole batch."""
        if of_sum is False:
            return list(gradients)
        one = tf.ones([], tf.float64)
        inverse = tf.where(of_sum, tf.math.divide_no_nan(one, self.weight()), one)
        return [scale(gradient, inverse) for gradient in gradients]

    def _reduce(self, gradients: Sequence[object], of_sum: OfSum = False) -> list[tf.Tensor]:
        """Sum the gradients over the workers, each with its weight, and the loss with the first of them."""
        losses = self._trace.take_loss() if self._trace else []
        apart = bool(losses) and self._replica.gradient_dtype is not None  # too few digits for a loss
        sums = self._weighted_sums([*gradients, *([] if apart else losses)], of_sum)
        if self._trace and losses:
            self._trace.note_loss(self._sum(self.weigh(losses))[0] if apart else sums.pop())
        return sums

    def _weighted_sums(self, gradients: Sequence[object], of_sum: OfSum) -> list[tf.Tensor]:
        """Sum gradients over the workers, each with its weight, but those of a sum over the rows."""
        if isinstance(of_sum, tf.Tensor):
            factor = tf.where(of_sum, tf.ones([], tf.float64), self.weight())
            scaled = [scale(gradient, factor) for gradient in gradients]
            return self._sum(scaled, self._replica.gradient_dtype, self._add_rows)
        if self.loss_is_weighted or of_sum:
            if self._replica.present is not None:  # the gradient of no rows may be NaN
                gradients = [scale(g, self._replica.present) for g in gradients]
            return self._sum(gradients, self._replica.gradient_dtype, self._add_rows)
        if self._replica.known_rows is not None:
            weighted = [scale(g, self.weight()) for g in gradients]
            return self._sum(weighted, self._replica.gradient_dtype, self._add_rows)
        scaled = [scale(g, self._count) for g in gradients]
        if self._replica.gradient_dtype is not None:  # it has too few digits for counts
            (total,) = self._sum([tf.cast(self._count, tf.float32)])
            sums = self._sum(scaled, self._replica.gradient_dtype, self._add_rows)
        else:
            together = [*scaled, tf.cast(self._count, tf.float32)]  # in one collective
            *sums, total = self._sum(together, add_rows=self._add_rows)
        return [scale(g, 1.0 / tf.cast(total, tf.float64)) for g in sums]

    def _sum(
        self, tensors: Sequence[object], dtype: tf.DType | None = None, add_rows: bool = False
    ) -> list[Any]:
        return self._peers.all_reduce(tf.distribute.ReduceOp.SUM, tensors, dtype, add_rows=add_rows)


def at_least_one(data: object, examples: tf.Tensor) -> object:
    """Return ``data``, or one row of zeros if it has no rows: some kernels (convolutions) fail on no rows."""

    def pad(value: object) -> object:
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


def count_examples(data: object) -> tf.Tensor:
    """Return the number of rows of a batch, a scalar of type int32."""
    first = next(part for part in tf.nest.flatten(data) if part is not None)
    if isinstance(first, tf.RaggedTensor):
        return tf.cast(first.nrows(), tf.int32)
    if isinstance(first, tf.SparseTensor):
        return tf.cast(first.dense_shape[0], tf.int32)
    return tf.shape(first)[0]

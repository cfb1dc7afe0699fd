"""A step of Keras's own ``train_step`` as a function: from a batch to gradients and the other updates.

Keras updates variables during a step. Steps that workers compute in parallel, and that are repeated when a
worker dies, must not do so. Here a step returns all values that it would assign, and its caller applies them.
A metric starts from zero in every step. The caller adds up its counts, as Keras does under every strategy.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError
from tfdistr.parameter_servers.feed import WorkerBatch
from tfdistr.strategies.exact.exchange import scale
from tfdistr.strategies.exact.loss_weighting import at_least_one
from tfdistr.strategies.exact.step_logs import flat_logs
from tfdistr.tf_internals import overridden

log = logging.getLogger("tfdistr")

_MASKED = (
    "A loss of the model has a mask, or is a mean over weights: each worker divides by its own entries, and "
    "its gradient weighs as its rows do, so the result is not quite that of one worker."
)


class StepOutcome(NamedTuple):
    """The result of a step on a share of a batch.

    Attributes:
        rows: Number of rows of the share.
        all_rows: Number of rows of the whole batch.
        gradients: The gradient of each variable that has one, weighted by ``rows / all_rows``.
        updates: New values of other variables, such as the averages of BatchNormalization.
        metrics: The value to add to each variable of the metrics.
        logs: The logs that the step has returned.
    """

    worker: Any
    rows: Any
    all_rows: Any
    gradients: list[Any]
    updates: list[Any]
    metrics: list[Any]
    logs: dict[str, Any]


class GradientStep:
    """The steps of a model, "train" or "test".

    Attributes:
        trained: The variables of ``Outcome.gradients``, in that order; known after the step is traced.
        updated: The variables of ``Outcome.updates``, in that order.
    """

    def __init__(
        self, model: keras.Model, kind: str, weigh: Callable[[Any], object] | None = None, split: bool = False
    ) -> None:
        self._model = model
        self._weigh, self._split = weigh, split
        known = tf_internals.keras_step(getattr(model, f"{kind}_step"))
        self._step = known[1] if known else getattr(model, f"{kind}_step")
        self._training = kind == "train"
        self.trained: list[keras.Variable] = []
        self.updated: list[keras.Variable] = []

    def __call__(self, batch: WorkerBatch, offset: tf.Tensor) -> StepOutcome:
        """Make the step, in a graph; ``offset`` separates the random numbers of workers."""
        data = at_least_one(batch.data, tf.cast(batch.rows, tf.int32))
        data = self._weigh(data) if self._weigh else data
        strategy = self._model.distribute_strategy
        states = [generator.state for generator in tf_internals.seed_generators(self._model)]
        seeds = {id(state): tf_internals.seed_offset(offset, state.dtype) for state in states}
        start = [(v, tf.zeros(v.shape, v.dtype)) for v in self._model.metrics_variables]
        start += [(state, state.value + seeds[id(state)]) for state in states]
        # Keras looks for these in the scope alone. They are not copied: the tape watches the variables.
        penalized = [v for v in self._model.trainable_variables if v.regularizer is not None]
        gradients: list[list[tuple[Any, Any]]] = []
        with (
            strategy.scope(),
            tf.distribute.ReplicaContext(strategy, replica_id_in_sync_group=0),
            self._losses(batch),
            _caught(self._model.optimizer, gradients) if self._training else contextlib.nullcontext(),
            keras.StatelessScope(start, initialize_variables=False) as scope,
        ):
            for variable in penalized:
                scope.add_update((variable, variable.value))
            logs = self._step(data)
        if self._training:
            self._check(gradients)
        pairs = gradients[0] if gradients else []
        self.trained = [variable for _, variable in pairs]
        weight = batch.rows / tf.maximum(batch.all_rows, 1.0)
        before = {id(variable): value for variable, value in start}
        before |= {id(variable): variable.value for variable in penalized}
        new = {id(v): scope.get_current_value(v) for v in self._variables()}
        self.updated = [
            v for v in self._variables() if new[id(v)] is not None and new[id(v)] is not before.get(id(v))
        ]
        return StepOutcome(
            worker=batch.worker,
            rows=batch.rows,
            all_rows=batch.all_rows,
            gradients=[scale(g, weight) for g, _ in pairs],
            updates=[new[id(v)] - seeds.get(id(v), tf.zeros([], v.dtype)) for v in self.updated],
            metrics=[
                _of_present(scope.get_current_value(v), batch.rows) for v in self._model.metrics_variables
            ],
            logs=flat_logs(logs) if isinstance(logs, dict) else {},
        )

    def _variables(self) -> list[keras.Variable]:
        optimizer = self._model.optimizer if self._training else None
        listed = [*self._model.variables, *(optimizer.variables if optimizer else ())]
        metrics = {id(v) for v in self._model.metrics_variables}
        return list({id(v): v for v in listed if id(v) not in metrics}.values())

    def _losses(self, batch: WorkerBatch) -> contextlib.AbstractContextManager[None]:
        """Keep the values of losses that are sums, although their gradients are weighted as for means."""

        def share(divisor: tf.Tensor | None) -> tf.Tensor:
            if divisor is None:
                return tf.math.divide_no_nan(batch.all_rows, batch.rows)
            if self._split:
                log.warning(_MASKED)
            return tf.ones([])

        return tf_internals.loss_shares(
            self._model, share, lambda: batch.rows / tf.maximum(batch.all_rows, 1.0)
        )

    def _check(self, gradients: Sequence[object]) -> None:
        if len(gradients) != 1:
            raise ArgumentError(
                "With parameter servers, a train_step must apply the gradients of its optimizer once.",
                received=f"{type(self._model).__name__}.train_step(), which calls it {len(gradients)} times",
                fix='Use strategy="multi_worker_mirrored" for models with several optimizers.',
            )


@contextlib.contextmanager
def _caught(optimizer: Any, gradients: list[list[tuple[Any, Any]]]) -> Iterator[None]:
    """Record gradients within the context instead of applying them."""

    def note(grads: Sequence[Any], trainable_variables: Any = None) -> None:
        variables = trainable_variables
        if variables is None:
            variables = tf_internals.trained_variables(optimizer)
        gradients.append([(g, v) for g, v in zip(grads, variables, strict=True) if g is not None])

    with overridden(optimizer, "apply", note):
        yield


def _of_present(value: object, rows: tf.Tensor) -> tf.Tensor:
    """Return the counts of a metric, without the row that stands for an empty share."""
    value = tf.convert_to_tensor(value)
    return tf.where(rows > 0, value, tf.zeros_like(value))

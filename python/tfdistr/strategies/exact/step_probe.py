"""Runs of a model's training step that record all that it changes, and restore it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.strategies.exact.exchange import NoPeers, ReplicaStep, scale
from tfdistr.strategies.exact.loss_weighting import count_examples
from tfdistr.strategies.exact.probed_state import ProbedState
from tfdistr.strategies.exact.replica import OneReplica
from tfdistr.strategies.exact.step_effects import Array, Effects
from tfdistr.strategies.exact.step_logs import MetricResults, flat_logs

# The most steps that are made until an optimizer changes weights: steps may add up gradients before.
_MOST_STEPS = 8


class StepProbe:
    """Makes steps of a model as one worker does, or split over the workers.

    The weights are perturbed, all rows get the same random numbers, losses are not scaled, and no
    BatchNormalization uses the statistics of a worker's rows: these differ by nature, or have their own
    warnings.

    Args:
        kind: "train" or "test": which step of the model runs.

    Attributes:
        steps: Number of steps, which the first run determines.
        draws: Whether the model draws random numbers by TensorFlow's seeds, which cannot be made alike.
        by_common_seeds: Whether the steps draw with Keras's global generator of random numbers.
    """

    def __init__(self, extended: OneReplica, model: keras.Model, kind: str = "train") -> None:
        self._extended, self._model, self._kind = extended, model, kind
        self.steps: int | None = None
        self.draws = self.by_common_seeds = False
        self._optimizers = tf_internals.optimizers_of(model) if kind == "train" else []
        self._state = ProbedState(extended, model)
        # For each gradient, the rows of the table that the first run has; None if it is no gradient of rows.
        self._rows: dict[str, Array | None] = {}
        # Where steps run in a graph, variables that get their gradients.
        self._in_graph: dict[str, tf.Variable] = {}
        self._number = 0

    @property
    def _step(self) -> Callable[..., Any]:
        step: Callable[..., Any] = getattr(self._model, f"{self._kind}_step")
        return step

    @contextlib.contextmanager
    def prepared(self, *, perturbed: bool, together: bool = False) -> Iterator[None]:
        """Prepare the model for runs within the context, ``together`` with the chief's layers."""
        state = self._state
        kept = state.values()
        with tf_internals.no_new_seed_generator():
            try:
                if together:
                    state.share_from_chief()
                if perturbed:
                    state.perturb()
                with self._extended.within(local_only=True):
                    self._model.reset_metrics()
                state.start = state.values()
                yield
            finally:
                state.restore(kept)

    def whole(self, batches: Sequence[object]) -> Effects:
        """Make the steps as one worker."""
        known = tf_internals.keras_step(self._step)
        step = known[1] if known else self._step
        replica = ReplicaStep(NoPeers(), None, 0, 1)

        def run(batch: object) -> Any:
            self._number = 0
            with self._extended.without_peers(), replica.entered():
                return flat_logs(step(batch))

        return self._run(run, batches)

    def split(self, batches: Sequence[object], expected: Effects) -> Effects:
        """Make the steps on this worker's rows, with the peers. All workers must call it."""
        strategy, step = self._extended.strategy, self._step

        def run(batch: object) -> Any:
            self._number = 0
            return strategy.run(step, args=(batch,))

        if self._extended.virtual is None:
            effects = self._run(run, batches)
        else:  # virtual workers exchange values in a graph only
            found = [item for step in expected.gradients.values() for item in step.items()]
            self._in_graph = {name: tf.Variable(np.zeros_like(value)) for name, value in found}
            effects = self._run(tf.function(run, autograph=False), batches)
        self._add_up(effects, int(count_examples(batches[min(1, len(effects.gradients) - 1)])))
        return effects

    def _run(self, step: Callable[[Any], object], batches: Sequence[object]) -> Effects:
        state = self._state
        state.restore(state.start)
        effects = Effects(before={state.names[key]: value.numpy() for key, value in state.start.items()})
        began = tf_internals.eager_draws()
        draws = tf_internals.Draws()
        number, logs, results = 0, None, MetricResults()
        with (
            results.noted(self._model),
            tf_internals.alike_for_all_rows(draws),
            tf_internals.silent_batch_statistics(self._model, synchronized=False),
            self._recorded(effects),
        ):
            while number < (self.steps or _MOST_STEPS):
                draws.restart()
                effects.gradients[number] = {}
                logs = step(batches[min(1, number)])
                effects.gradients[number] |= {k: v.numpy() for k, v in self._in_graph.items()}
                number += 1
                if self.steps is None and self._is_enough(effects, number):
                    break
        self.steps = number
        self.by_common_seeds = self.by_common_seeds or draws.by_common_seeds
        drawn = any(map(state.has_changed, state.generators))
        self.draws = self.draws or drawn or began != tf_internals.eager_draws()
        self._read(effects, logs, results)
        return effects

    def is_idle(self, effects: Effects) -> bool:
        """Return whether no optimizer got gradients in any step, although there are optimizers."""
        return bool(self._optimizers) and not any(effects.gradients.values())

    def _is_enough(self, effects: Effects, number: int) -> bool:
        """Return whether the steps have shown their effects; a changed state shows in the next gradients."""
        if self.is_idle(effects):
            return False
        return number > 1 or not any(map(self._state.has_changed, self._state.shown))

    @contextlib.contextmanager
    def _recorded(self, effects: Effects) -> Iterator[None]:
        """Record the gradients in place of all changes by optimizers, within the context."""
        with contextlib.ExitStack() as stack:
            for optimizer in self._optimizers:
                apply = functools.partial(self._record, effects, optimizer)
                stack.enter_context(tf_internals.overridden(optimizer, "apply", apply))
                stack.enter_context(tf_internals.overridden(optimizer, "scale_loss", lambda loss: loss))
            yield

    def _record(
        self, effects: Effects, optimizer: Any, grads: Sequence[Any], trainable_variables: Any = None
    ) -> None:
        known = trainable_variables is None
        weights = tf_internals.trained_variables(optimizer) if known else trainable_variables
        for gradient, weight in zip(grads, weights, strict=False):
            if gradient is None:
                continue
            name = f"{self._number} {weight.path}"
            self._number += 1
            dense = self._dense(gradient, name)
            if tf.executing_eagerly():
                effects.gradients[max(effects.gradients)][name] = dense.numpy()
            elif name in self._in_graph:
                self._in_graph[name].assign(dense)

    def _dense(self, gradient: Any, name: str) -> tf.Tensor:
        """Return a gradient in at least 32 bits; of an embedding, the rows of the first run."""
        dtype = gradient.dtype if gradient.dtype == tf.float64 else tf.float32
        slices = isinstance(gradient, tf.IndexedSlices)
        if name not in self._rows:
            self._rows[name] = np.unique(gradient.indices.numpy()) if slices else None
        rows = self._rows[name]
        if rows is None:
            return tf.cast(tf.convert_to_tensor(gradient), dtype)
        if not slices:  # a small table is exchanged whole
            return tf.cast(tf.gather(gradient, rows), dtype)
        places = tf.searchsorted(tf.constant(rows), gradient.indices)
        return tf.math.unsorted_segment_sum(tf.cast(gradient.values, dtype), places, len(rows))

    def _read(self, effects: Effects, logs: object, results: MetricResults) -> None:
        """Read what the steps have changed on this worker."""
        state = self._state
        shown = filter(state.has_changed, state.shown)
        effects.variables = {state.names[key]: state.variables[key].numpy() for key in shown}
        effects.metrics = {state.names[key]: state.variables[key].numpy() for key in state.metrics}
        with self._extended.within(local_only=True):
            are_metrics = tf_internals.logs_are_metrics(self._model, logs)
        if not isinstance(logs, dict) or are_metrics:
            return
        for name, value in logs.items():
            metric = results.metric_of(value)
            if metric is None:
                effects.logs[name] = _number(value)
            else:
                effects.results[name] = metric

    def _add_up(self, effects: Effects, rows: int) -> None:
        """Replace the parts of this worker, which had so many rows in the last step, by those of all."""
        collectives = self._extended.collectives
        if self._extended.virtual is not None:  # variables are common, and logs are means
            effects.summed = {name: self._extended.virtual.count * log for name, log in effects.logs.items()}
            return
        assert collectives is not None
        parts = self._extended.own_metrics(self._model)
        summed = [self._state.names[id(self._extended.local_variable(variable))] for variable in parts]
        sums = tf.distribute.ReduceOp.SUM
        totals = collectives.all_reduce(sums, [tf.constant(effects.metrics[name]) for name in summed])
        effects.metrics |= {name: total.numpy() for name, total in zip(summed, totals, strict=True)}
        logs = [tf.constant(value) for value in effects.logs.values()]
        count = tf.constant(float(rows), tf.float64)
        totals = collectives.all_reduce(sums, [*logs, *(scale(log, count) for log in logs), count])
        *numbers, all_rows = (total.numpy() for total in totals)
        effects.summed = dict(zip(effects.logs, numbers[: len(logs)], strict=True))
        means = (number / all_rows for number in numbers[len(logs) :])
        effects.logs = dict(zip(effects.logs, means, strict=True))


def _number(value: object) -> Array:
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.kind in "biuf" else np.zeros(0)

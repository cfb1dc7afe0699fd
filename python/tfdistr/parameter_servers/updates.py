"""The updates of the weights from the gradients of many workers, and the counts of their steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfdistr.data.pipeline.index_batches import Batches
from tfdistr.parameter_servers.dispatch import Dispatcher, Packing
from tfdistr.parameter_servers.feed import WorkerBatch
from tfdistr.parameter_servers.gradients import GradientStep, Outcome
from tfdistr.tf_internals import overridden


class Report(keras.callbacks.Callback):  # type: ignore[misc]
    """The numbers of the workers' steps. It is a callback so that checkpoints store it.

    Attributes:
        global_step: Number of updates of the weights.
        local_steps: By index of the worker: how often its gradient was part of an update.
        dropped: By index of the worker: number of gradients that came too late.
        not_computed: Number of shares that no worker had started when their step was complete.
    """

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.global_step = 0
        self.local_steps = [0] * workers
        self.dropped = [0] * workers
        self.not_computed = 0

    def numbers(self) -> dict[str, Any]:
        """Return the fields of the event "worker_steps"."""
        return {
            "global_step": self.global_step,
            "local_steps": list(self.local_steps),
            "dropped": list(self.dropped),
            "not_computed": self.not_computed,
        }


class StepsReporter(keras.callbacks.Callback):  # type: ignore[misc]
    """The report of the workers' steps after each epoch, and at the end."""

    remembers = False  # a checkpoint does not store it

    def __init__(self, tell: Callable[[float], None]) -> None:
        super().__init__()
        self._tell = tell

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._tell(0.0)

    def on_train_end(self, logs: Any = None) -> None:
        self._tell(0.0)


_PLACE = tf.TensorSpec([3], tf.int64)

#: A function that makes the batch of a place (step, number of shares, share), in a graph.
MakeBatch = Callable[[tf.Tensor], WorkerBatch]
#: Called before a step, with its number in the epoch.
Begin = Callable[[int], None]
#: Called after a step with the number of finished steps and the outcomes; returns whether to continue.
End = Callable[[int, list[Outcome]], bool]


class OneByOne:
    """Updates by single workers: each takes whole batches, and with ``model`` updates the weights at once.

    Args:
        model: The model, if its weights are updated; None for a validation.
        report: Counts the steps of the workers; None for a validation.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        step: GradientStep,
        batch: MakeBatch,
        workers: int,
        model: keras.Model | None = None,
        report: Report | None = None,
    ) -> None:
        self._dispatcher, self._report = dispatcher, report
        # Each worker has another step ready when it finishes one.
        self._at_a_time = 2 * workers
        self._packing = Packing()
        self._updates = model is not None

        @tf.function(input_signature=[_PLACE], autograph=False)  # type: ignore[untyped-decorator]
        def make(place: tf.Tensor) -> Any:
            made = batch(place)
            outcome = step(made, made.worker)
            if model is not None:
                apply_gradients(model, outcome.gradients, step.trained)
                for variable, value in zip(step.updated, outcome.updates, strict=True):
                    variable.value.assign(value)  # of two simultaneous values, the last counts
            return self._packing.pack(outcome._replace(gradients=[], updates=[]))

        self._make = make.get_concrete_function()

    def run(self, first: int, count: int | None, begin: Begin, end: End) -> None:
        """Make ``count`` steps, from step ``first`` on, counted over all epochs."""
        assert count is not None
        sent, done, goes_on = 0, 0, True
        came: dict[int, Outcome] = {}
        while done < (count if goes_on else sent):
            while goes_on and sent < count and sent - done < self._at_a_time:
                begin(sent)
                self._dispatcher.send(self._make, (first + sent, 1, 0), self, sent)
                sent += 1
            step, packed = self._dispatcher.receive(self)
            # Sums depend on their order: a validation has the order of the steps, as one worker makes them.
            came[done + len(came) if self._updates else step] = self._packing.unpack(packed)
            while done in came:
                outcome = came.pop(done)
                done += 1
                if self._report is not None:
                    self._report.global_step += 1
                    self._report.local_steps[int(outcome.worker)] += 1
                goes_on = end(done, [outcome]) and goes_on


class Together:
    """Updates by all workers: each batch is split, and the mean of the gradients updates the weights once.

    The chief receives the gradients and adds them up in the order of the shares. So a worker that dies
    changes nothing: an incomplete gradient does not count.

    Args:
        wanted: The number of shares that make a step.
        arrays: The batches, if their numbers of rows are known.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        step: GradientStep,
        batch: MakeBatch,
        workers: int,
        model: keras.Model,
        report: Report,
        wanted: int,
        arrays: Batches | None,
    ) -> None:
        self._dispatcher, self._workers, self._report = dispatcher, workers, report
        self._wanted, self._arrays = wanted, arrays
        self._current = -1
        self._packing = Packing()

        @tf.function(input_signature=[_PLACE], autograph=False)  # type: ignore[untyped-decorator]
        def make(place: tf.Tensor) -> Any:
            return self._packing.pack(step(batch(place), place[2]))

        @tf.function(autograph=False, reduce_retracing=True)  # type: ignore[untyped-decorator]
        def apply(gradients: list[list[Any]], updates: list[list[Any]], rows: list[tf.Tensor]) -> None:
            all_rows = tf.add_n(rows)
            sums = [_sum(list(parts)) for parts in zip(*gradients, strict=True)]
            apply_gradients(model, sums, step.trained)
            for variable, values in zip(step.updated, zip(*updates, strict=True), strict=True):
                variable.value.assign(_mean(list(values), [count / all_rows for count in rows]))

        self._make, self._apply = make.get_concrete_function(), apply

    def run(self, first: int, count: int | None, begin: Begin, end: End) -> None:
        """Make ``count`` steps, from step ``first`` on, counted over all epochs."""
        assert count is not None
        for done in range(count):
            begin(done)
            outcomes = self._step(first + done)
            self._report.global_step += 1
            for outcome in outcomes:
                self._report.local_steps[int(outcome.worker)] += 1
            if not end(done + 1, outcomes):
                break

    def _step(self, number: int) -> list[Outcome]:
        self._current = number
        rows = self._arrays.rows(number) if self._arrays else self._workers
        shares = min(self._workers, rows)
        for share in range(shares):
            place, key = (number, shares, share), (number, share)
            self._dispatcher.send(self._make, place, self, key, lambda: self._current == number)
        came: dict[int, Outcome] = {}
        empty = 0  # if the rows of a batch are not known before
        while len(came) < self._wanted and len(came) + empty < shares:
            (of, share), packed = self._dispatcher.receive(self)
            outcome = packed and self._packing.unpack(packed)
            if of != number:
                self._drop(outcome)
            elif float(outcome.rows) == 0:
                empty += 1
            else:
                came[share] = outcome
        outcomes = [came[share] for share in sorted(came)]
        gradients = [outcome.gradients for outcome in outcomes]
        if len(came) + empty < shares:
            part = sum(float(o.rows) for o in outcomes) / float(outcomes[0].all_rows)
            gradients = [[_scaled(g, 1 / part) for g in parts] for parts in gradients]
        self._apply(gradients, [o.updates for o in outcomes], [o.rows for o in outcomes])
        return outcomes

    def settle(self) -> None:
        """Receive the gradients that come too late, after the last step."""
        self._current = -1
        for packed in self._dispatcher.finish(self):
            self._drop(packed and self._packing.unpack(packed))

    def _drop(self, outcome: Outcome | None) -> None:
        if outcome is None:
            self._report.not_computed += 1
        elif float(outcome.rows) > 0:
            self._report.dropped[int(outcome.worker)] += 1


def apply_gradients(model: keras.Model, gradients: list[Any], variables: list[keras.Variable]) -> None:
    """Apply gradients on the servers of the variables, so that workers may do so at the same time."""
    optimizer, strategy = model.optimizer, model.distribute_strategy
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # inside a LossScaleOptimizer
    with contextlib.ExitStack() as stack:
        for counter in {id(c.iterations): c.iterations for c in (optimizer, inner)}.values():
            # Keras reads, adds and writes: of two simultaneous updates one would be lost.
            stack.enter_context(overridden(counter, "assign_add", counter.value.assign_add))
        # There is no other replica for an all-reduce.
        stack.enter_context(overridden(inner, "_all_reduce_sum_gradients", lambda pairs: pairs))
        stack.enter_context(strategy.scope())
        stack.enter_context(tf.distribute.ReplicaContext(strategy, replica_id_in_sync_group=0))
        optimizer.apply(gradients, variables)


def _sum(parts: list[Any]) -> Any:
    if isinstance(parts[0], tf.IndexedSlices):
        return tf.IndexedSlices(
            tf.concat([part.values for part in parts], 0),
            tf.concat([part.indices for part in parts], 0),
            parts[0].dense_shape,
        )
    return tf.add_n(parts)


def _mean(values: list[tf.Tensor], weights: list[tf.Tensor]) -> tf.Tensor:
    """Return the weighted mean of the shares' values; for integers, such as counters, the first value."""
    if not values[0].dtype.is_floating:
        return values[0]
    return tf.add_n([v * tf.cast(w, v.dtype) for v, w in zip(values, weights, strict=True)])


def _scaled(gradient: Any, factor: float) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor

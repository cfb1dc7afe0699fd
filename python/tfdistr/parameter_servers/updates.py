"""The updates of the weights from the gradients of many workers, and the counts of their steps."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfdistr.data.pipeline.index_batches import Batches
from tfdistr.parameter_servers.dispatch import Dispatcher, Packed, Packing
from tfdistr.parameter_servers.feed import WorkerBatch
from tfdistr.parameter_servers.gradients import GradientStep, StepOutcome
from tfdistr.strategies.exact.exchange import scale
from tfdistr.tf_internals import apply_sums, overridden, with_inner_optimizers
from tfdistr.training.reporter import OnEvent


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
    """Reports the steps of the workers now and then, after each epoch, and at the end."""

    remembers = False  # a checkpoint does not store it

    def __init__(self, report: Report, on_event: OnEvent) -> None:
        super().__init__()
        self._report, self._on_event, self._reported = report, on_event, 0.0

    def tell(self, interval: float = 0.0) -> None:
        """Report, unless it was done within these seconds."""
        now = time.monotonic()
        if now - self._reported >= interval:
            self._reported = now
            self._on_event("worker_steps", **self._report.numbers())

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self.tell()

    def on_train_end(self, logs: object = None) -> None:
        self.tell()


_PLACE = tf.TensorSpec([3], tf.int64)
#: Number of short steps that a worker makes in one call.
_AT_ONCE = 8
#: A step is short if it takes a worker less than these seconds, on average of the last ``_TIMED`` steps.
#: ``_TRIED`` steps come first: the function for several steps takes time to build.
_SHORT, _TIMED, _TRIED = 0.02, 16, 200

#: A function that makes the batch of a place (step, number of shares, share), in a graph.
MakeBatch = Callable[[tf.Tensor], WorkerBatch]
#: Called before a step, with its number in the epoch.
Begin = Callable[[int], None]
#: Called after a step with the number of finished steps and the outcomes; returns whether to continue.
End = Callable[[int, list[StepOutcome]], bool]


class OneByOne:
    """Updates by single workers: each takes whole batches, and with ``model`` updates the weights at once."""

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
        self._workers, self._updates = workers, model is not None
        self._packing = Packing()
        self._made, self._ends = 0, deque[float](maxlen=_TIMED)

        @tf.function(input_signature=[_PLACE], autograph=False)  # type: ignore[untyped-decorator]
        def make(place: tf.Tensor) -> Any:
            made = batch(place)
            outcome = step(made, tf.cast(made.worker, tf.int64))
            if model is not None:
                apply_gradients(model, outcome.gradients, step.trained)
                for variable, value in zip(step.updated, outcome.updates, strict=True):
                    variable.value.assign(value)  # of two simultaneous values, the last counts
            return self._packing.pack(outcome._replace(gradients=[], updates=[]))

        @tf.function(input_signature=[_PLACE], autograph=False)  # type: ignore[untyped-decorator]
        def make_several(place: tf.Tensor) -> Any:
            return self._packing.join([make(tf.add(place, [step, 0, 0])) for step in range(_AT_ONCE)])

        self._make, self._make_several = make.get_concrete_function(), make_several

    def run(self, first: int, count: int | None, begin: Begin, end: End, *, one_by_one: bool = False) -> None:
        """Make ``count`` steps from ``first`` on; short ones are reported together, or ``one_by_one``."""
        assert count is not None
        self._ends.clear()
        sent, done, calls, goes_on = 0, 0, 0, True
        came: dict[int, StepOutcome] = {}
        while done < (count if goes_on else sent):
            # Each worker has another call ready when it finishes one.
            while goes_on and sent < count and calls < 2 * self._workers:
                several = not one_by_one and count - sent >= 2 * self._workers * _AT_ONCE and self._short()
                function = self._make_several.get_concrete_function() if several else self._make
                for step in range(_AT_ONCE if several else 1):
                    begin(sent + step)
                self._dispatcher.send(function, (first + sent, 1, 0), self, sent)
                sent += _AT_ONCE if several else 1
                calls += 1
            step, packed = self._dispatcher.receive(self)
            calls -= 1
            outcomes = self._packing.read(packed)
            if len(outcomes) == 1:
                self._ends.append(time.monotonic())
            # Sums depend on their order: a validation has the order of the steps, as one worker makes them.
            came.update(enumerate(outcomes, done + len(came) if self._updates else step))
            while done in came:
                outcome = came.pop(done)
                done += 1
                self._made += 1
                if self._report is not None:
                    self._report.global_step += 1
                    self._report.local_steps[int(outcome.worker)] += 1
                goes_on = end(done, [outcome]) and goes_on

    def _short(self) -> bool:
        """Return whether a step takes so little time that a call for each would take longer."""
        if self._made < _TRIED or len(self._ends) < _TIMED:
            return False
        return (self._ends[-1] - self._ends[0]) / (_TIMED - 1) * self._workers < _SHORT


class Together:
    """Updates by all workers: each batch is split, and the mean of the gradients updates the weights once.

    The chief receives the gradients and adds them up in the order of the shares. So a worker that dies
    changes nothing: an incomplete gradient does not count.
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
        def apply(packed: list[Packed], factor: tf.Tensor) -> None:
            outcomes = [self._packing.unpack(one) for one in packed]
            all_rows = tf.add_n([one.rows for one in outcomes])
            sums = [_sum(list(parts)) for parts in zip(*(one.gradients for one in outcomes), strict=True)]
            apply_gradients(model, [scale(gradient, factor) for gradient in sums], step.trained)
            updates = zip(*(one.updates for one in outcomes), strict=True)
            for variable, values in zip(step.updated, updates, strict=True):
                variable.value.assign(_mean(list(values), [one.rows / all_rows for one in outcomes]))

        self._make, self._apply = make.get_concrete_function(), apply

    def run(self, first: int, count: int | None, begin: Begin, end: End, *, one_by_one: bool = False) -> None:
        """Make ``count`` steps, from step ``first`` on, counted over all epochs, one by one."""
        assert count is not None
        for done in range(count):
            begin(done)
            outcomes = self._step(first + done)
            self._report.global_step += 1
            for outcome in outcomes:
                self._report.local_steps[int(outcome.worker)] += 1
            if not end(done + 1, outcomes):
                break

    def _step(self, number: int) -> list[StepOutcome]:
        self._current = number
        rows = self._arrays.rows(number) if self._arrays else self._workers
        shares = min(self._workers, rows)
        for share in range(shares):
            place, key = (number, shares, share), (number, share)
            self._dispatcher.send(self._make, place, self, key, lambda: self._current == number)
        came: dict[int, tuple[Packed, StepOutcome]] = {}
        empty = 0  # if the rows of a batch are not known before
        while len(came) < self._wanted and len(came) + empty < shares:
            (of, share), packed = self._dispatcher.receive(self)
            if of != number:
                self._drop(packed)
                continue
            (outcome,) = self._packing.read(packed)
            if outcome.rows == 0:
                empty += 1
            else:
                came[share] = packed, outcome
        in_order = [came[share] for share in sorted(came)]
        outcomes = [outcome for _, outcome in in_order]
        whole = len(came) + empty == shares
        factor = 1.0 if whole else outcomes[0].all_rows / sum(outcome.rows for outcome in outcomes)
        self._apply([packed for packed, _ in in_order], tf.constant(factor, tf.float32))
        return outcomes

    def settle(self) -> None:
        """Receive the gradients that come too late, after the last step."""
        self._current = -1
        for packed in self._dispatcher.finish(self):
            self._drop(packed)

    def _drop(self, packed: Packed | None) -> None:
        if packed is None:
            self._report.not_computed += 1
            return
        (outcome,) = self._packing.read(packed)
        if outcome.rows > 0:
            self._report.dropped[int(outcome.worker)] += 1


def apply_gradients(model: keras.Model, gradients: list[tf.Tensor], variables: list[keras.Variable]) -> None:
    """Apply gradients on the servers of the variables, so that workers may do so at the same time."""
    optimizer, strategy = model.optimizer, model.distribute_strategy
    counters = [each.iterations for each in with_inner_optimizers(optimizer)]
    with contextlib.ExitStack() as stack:
        for counter in {id(counter): counter for counter in counters}.values():
            # Keras reads, adds and writes: of two simultaneous updates one would be lost.
            stack.enter_context(overridden(counter, "assign_add", counter.value.assign_add))
        stack.enter_context(strategy.scope())
        stack.enter_context(tf.distribute.ReplicaContext(strategy, replica_id_in_sync_group=0))
        apply_sums(optimizer, optimizer.apply, gradients, variables)  # there is no other replica


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

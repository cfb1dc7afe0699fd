"""Many steps of a model in one TensorFlow call."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.data.pipeline.index_batches import Batches, ReadAhead
from tfdistr.data.pipeline.worker_data import WorkerData
from tfdistr.strategies.exact.nan_inputs import InputWatch
from tfdistr.strategies.exact.replica import OneReplica
from tfdistr.strategies.exact.step_logs import flat_logs
from tfdistr.strategies.exact.step_trace import StepTrace
from tfdistr.training.step_times import StepTimes
from tfdistr.utils.interrupts import uninterrupted


class StepLoops:
    """The graphs that make many steps in one call.

    Args:
        one: The graph of a step. It returns its logs, and its values for the trace.
        known: The batches that tell the numbers of rows of those of the iterator, if they are known.
        stacked: Whether batches come in stacks. Then their numbers of rows are known.
        trace: The trace of the steps, if there is one.

    Attributes:
        over_stack: Makes a step with each batch of a stack. It returns the logs of the last step, and the
            traced values.
        over_iterator: Makes ``count`` steps with the batches of an iterator. It also returns the seconds of
            the waits for batches.
    """

    def __init__(
        self, one: tf.types.experimental.PolymorphicFunction, data: WorkerData, known: Batches | None,
        stacked: bool, trace: StepTrace | None,
    ) -> None:  # fmt: skip
        self._one, self._data, self._known, self._stacked, self._trace = one, data, known, stacked, trace
        self.over_iterator = tf.function(self._over_iterator, autograph=False)
        signature = None
        if stacked:
            spec = data.element_spec
            stack = tf.nest.map_structure(lambda part: tf.TensorSpec([None, *part.shape], part.dtype), spec)
            signature = [stack, tf.TensorSpec([], tf.float32)]
        self.over_stack = tf.function(self._over_stack, signature, autograph=False)
        for loop in (self.over_iterator, self.over_stack):
            tf_internals.traced_for_each_job(loop)

    def _over_stack(self, stack: object, rows: tf.Tensor) -> Any:
        count = tf.shape(tf.nest.flatten(stack)[0])[0]
        outputs, values, *_ = self._loop(
            count, lambda i: (tf.nest.map_structure(lambda part: part[i], stack), rows)
        )
        return outputs, values

    def _over_iterator(self, iterator: Any, count: tf.Tensor, first: tf.Tensor) -> tuple[Any, ...]:
        known = self._known

        def arguments(number: tf.Tensor) -> tuple[Any, ...]:
            batch = iterator.get_next()
            if known is None:
                return (batch,)
            return batch, known.rows_in_graph(first + tf.cast(number, tf.int64))

        with tf.device("CPU:0"):
            clocks = (tf.constant(0.0, tf.float64), tf.constant(0.0, tf.float64))
        outputs, values, waited, _ = self._loop(count, arguments, clocks)
        return outputs, values, waited

    def _loop(
        self,
        count: tf.Tensor,
        arguments: Callable[[tf.Tensor], tuple[object, ...]],
        clocks: tuple[tf.Tensor, ...] = (),
    ) -> tuple[Any, ...]:
        """Make ``count`` steps: return the last logs, the traced values, the waits and the end."""
        known = [tf.TensorSpec([], tf.float32)] if self._stacked or self._known else []
        one = self._one.get_concrete_function(self._data.element_spec, *known)
        form = one.structured_outputs
        specs = _tensors(form)
        nothing = [tf.zeros([size or 0 for size in spec.shape], spec.dtype) for spec in specs]
        shapes = [spec.shape for spec in specs]

        kept = []
        if self._trace:  # its values are the last output of a step
            kept = [tf.TensorArray(tf.float64, count, element_shape=[self._trace.width])]

        def step(number: tf.Tensor, _: object, kept: list[Any], *clocks: tf.Tensor) -> tuple[Any, ...]:
            if not clocks:
                outputs = _tensors(self._one(*arguments(number)))
                return number + 1, outputs, [each.write(number, outputs[-1]) for each in kept]
            waited, ended = clocks
            asked = _time_after(number)
            with tf.control_dependencies([asked]):
                given = arguments(number)
            now = _time_after(given)
            waited = _add_wait(waited, asked, ended, now)
            # Otherwise a thread that has both to do could take the step first, and then the time.
            with tf.control_dependencies([now, ended]):
                outputs = _tensors(self._one(*given))
            kept = [each.write(number, outputs[-1]) for each in kept]
            return number + 1, outputs, kept, waited, _time_after(outputs)

        with tf_internals.loop_of(one):
            _, found, kept, *times = tf.while_loop(
                lambda number, *others: number < count,
                step,
                (tf.constant(0), nothing, kept, *clocks),
                shape_invariants=(
                    tf.TensorShape([]), shapes, [tf.TensorShape(None) for _ in kept],
                    *(clock.shape for clock in clocks),
                ),
            )  # fmt: skip
        results = iter(found)
        outputs = [None if part is None else next(results) for part in tf.nest.flatten(form)]
        logs, _ = tf.nest.pack_sequence_as(form, outputs)
        return logs, kept[0].stack() if kept else None, *times


def _tensors(outputs: object) -> list[Any]:
    """Return the outputs of a step that are not None, which no loop of TensorFlow takes."""
    return [part for part in tf.nest.flatten(outputs) if part is not None]


def _time_after(values: object) -> tf.Tensor:
    """Return the time in seconds when the values have been computed."""
    with tf.control_dependencies(tf.nest.flatten(values, expand_composites=True)), tf.device("CPU:0"):
        return tf.timestamp()


def _add_wait(waited: tf.Tensor, asked: tf.Tensor, ended: tf.Tensor, given: tf.Tensor) -> tf.Tensor:
    """Add the wait for a batch that was requested and given at these times.

    TensorFlow may read a batch while the step before, which has ended at ``ended``, still computes. That is
    no wait.
    """
    with tf.device("CPU:0"):
        return waited + tf.maximum(given - tf.maximum(asked, ended), 0.0)


#: Seconds that one TensorFlow call with many steps may take. Between two calls Python runs, for the progress
#: display and for interrupts.
CALL_SECONDS = 0.25

#: Limit in bytes of the batches that are gathered at once, on the thread of the loop, or of files on another.
#: Larger batches come from a pipeline, which gathers them during the step before.
GATHERED_BYTES = 1024 * 1024

Step = Callable[[Any], object]


def _whole(compiled: Callable[..., object], *arguments: object) -> Any:
    """Call a compiled function. After half of its trace, TensorFlow could build nothing in this process."""
    with uninterrupted(once=True):
        return compiled(*arguments)


class Steps:
    """The steps of a model on a worker's batches, many of them in one TensorFlow call.

    Attributes:
        pace: Number of steps that take about ``CALL_SECONDS``.
    """

    def __init__(
        self,
        model: keras.Model,
        step: Step,
        data: WorkerData,
        weigh: Step | None = None,
        times: StepTimes | None = None,
        watch: InputWatch | None = None,
        trace: StepTrace | None = None,
    ) -> None:
        self.pace = 1
        self._traced: list[Any] = []
        self._times = times or StepTimes()
        self._data = data
        self._next = data.first
        self._iterator: Iterator[Any] | None = None
        # Without a known end, from a generator, or in eager mode, Python handles each batch.
        self._each_alone = data.steps is None or model.run_eagerly or data.fed
        arrays = None if self._each_alone else data.arrays
        self._at_a_time = GATHERED_BYTES // max(1, arrays.most_bytes) if arrays else 0
        self._arrays: Batches | ReadAhead | None = arrays
        if arrays and arrays.ahead and self._at_a_time:
            self._arrays = ReadAhead(arrays, self._at_a_time)
        strategy, extended = model.distribute_strategy, extended_of(model)
        never_empty = data.arrays is not None and data.arrays.never_empty
        alone = extended is None or extended.collectives is None

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def one(batch: object, rows: tf.Tensor | None = None) -> Any:
            if watch is not None and not model.jit_compile:  # XLA on a GPU has no variables of the CPU
                watch.see(batch)
            with (
                extended.within(known_rows=rows, never_empty=never_empty, trace=trace)
                if extended
                else contextlib.nullcontext(),
                tf_internals.fewer_passes(model, after_all_gradients=alone),
                trace.recording() if trace else contextlib.nullcontext(),
            ):
                logs = flat_logs(strategy.run(step, args=(weigh(batch) if weigh else batch,)))
                return logs, None if trace is None else trace.values()

        compiled = tf.function(one, reduce_retracing=True, jit_compile=model.jit_compile)
        tf_internals.traced_for_each_job(compiled)
        self._one = one if model.run_eagerly else functools.partial(_whole, compiled)
        # Known rows weigh the loss, and unknown rows the gradients, which rounds differently. So prefetched
        # batches also have known rows: the results are bitwise identical to those of arrays.
        known = arrays if arrays and arrays.ahead and not self._at_a_time else None
        self._loops = StepLoops(compiled, data, known, self._at_a_time > 0, trace)

    def rewind(self) -> None:
        """Restart the data."""
        self._next, self._iterator = 0, None

    def skip(self, epochs: int, steps: int | None) -> None:
        """Skip the batches of epochs of so many steps; None for whole passes over the data."""
        self._next += epochs * (steps or 0)
        for _ in range(0 if self._at_a_time else epochs):
            if steps is None:
                self._iterator = None
            self._iterator = self._iterator or iter(self._data.dataset)
            for _ in itertools.islice(self._iterator, steps):
                pass

    def run(self, count: int) -> tuple[int, Any]:
        """Make ``count`` steps; return how many were made, and the logs of the last one."""
        began = time.monotonic()
        made, outputs = self._make(count)
        seconds = time.monotonic() - began
        self._next += made
        if made >= self.pace and 2 * seconds < CALL_SECONDS:
            self.pace *= 2
        elif made > 1 and seconds > 2 * CALL_SECONDS:
            self.pace = max(1, self.pace // 2)
        return made, outputs

    def traced(self) -> list[Any]:
        """Return the values of the steps since the last call, as ``StepTrace`` has them, in tensors."""
        traced, self._traced = self._traced, []
        return traced

    def _make(self, count: int) -> tuple[int, object]:
        if self._at_a_time:
            return count, self._gathered(count)
        if self._iterator is None:
            with self._reading():
                self._iterator = iter(self._data.dataset)
        if not self._each_alone:
            first = tf.constant(self._next, tf.int64)
            outputs, values, waited = _whole(
                self._loops.over_iterator, self._iterator, tf.constant(count), first
            )
            self._times.add("waiting_for_data", float(waited))
            self._note(values)
            return count, outputs
        outputs = None
        for made in range(count):
            with self._reading():
                batch = next(self._iterator, None)
            if batch is None:
                return made, outputs
            outputs, values = self._one(batch)
            self._note(values if values is None else values[tf.newaxis])
        return count, outputs

    def _note(self, values: object) -> None:
        if values is not None:
            self._traced.append(values)

    def _gathered(self, count: int) -> object:
        assert self._arrays is not None
        assert self._data.arrays is not None
        made, outputs = 0, None
        while made < count:
            step = self._next + made
            with self._reading():
                stack = self._arrays.batches(step, min(count - made, self._at_a_time))
            made += len(tf.nest.flatten(stack)[0])
            rows = tf.constant(self._data.arrays.rows(step), tf.float32)
            outputs, values = _whole(self._loops.over_stack, stack, rows)
            self._note(values)
        return outputs

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Measure a wait for batches. It has no collectives, whose seconds may take a call to read."""
        began = time.monotonic()
        yield
        self._times.add("waiting_for_data", time.monotonic() - began)


def extended_of(model: keras.Model) -> OneReplica | None:
    """Return the object that runs the replica of a model, if it is tfdistr's."""
    extended = model.distribute_strategy.extended
    return extended if isinstance(extended, OneReplica) else None

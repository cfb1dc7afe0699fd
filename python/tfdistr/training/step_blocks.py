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
from tfdistr.training.step_loops import StepLoops
from tfdistr.training.step_times import StepTimes
from tfdistr.utils.interrupts import uninterrupted

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

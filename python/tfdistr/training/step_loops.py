"""Loops of a model's steps in a TensorFlow graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.data.pipeline.index_batches import Batches
from tfdistr.data.pipeline.worker_data import WorkerData
from tfdistr.strategies.exact.step_trace import StepTrace


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
        """Make ``count`` steps in the graph.

        Returns:
            The logs of the last step, the traced values of all steps (None without a trace), the seconds of
            these waits, and the time when the last step ended.
        """
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

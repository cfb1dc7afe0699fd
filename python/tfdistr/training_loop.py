"""The training loop of ``distributed_fit()``: what Keras's ``fit`` means, without what its loop waits for.

``model.train_step`` runs many times in one call of TensorFlow, unless a callback wants to be called after
each batch. Nothing in the loop asks a peer: the number of steps is known, and the logs of a step are the
worker's own; the metrics of an epoch are read once, together. Workers may differ in how many steps a call
makes. An epoch has its number of steps also where ``steps_per_execution`` does not divide it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfdistr import _private
from tfdistr.callbacks import wants_batches
from tfdistr.data.first_look import batch_of_zeros, has_known_shapes
from tfdistr.data.pipeline import WorkerData
from tfdistr.recovery.keeper import Keeper
from tfdistr.replica import OneReplica
from tfdistr.watchdog import progress

#: Seconds that one call of TensorFlow with many steps may take: between two calls Python gets its turn, for
#: the display of progress and for interrupts.
CALL_SECONDS = 0.25

#: Bytes of batches that are gathered at once, on the thread of the loop. Batches that are larger come from a
#: pipeline, which gathers them while the step before is made.
GATHERED_BYTES = 1024 * 1024

Step = Callable[[Any], Any]
#: Called with the number of steps of the epoch that are done, and the logs of the last one.
OnSteps = Callable[[int, Any], None]


def runs_own_loop(model: keras.Model) -> bool:
    """Whether ``fit`` can train a model: its author left Keras's loop as it is, and it has one replica."""
    extended = _own_extended(model)
    one = extended.one_replica if extended else model.distribute_strategy.num_replicas_in_sync == 1
    return one and not _private.changes_keras_loop(model)


def fit(
    model: keras.Model,
    data: WorkerData,
    *,
    epochs: int,
    validation: WorkerData | None,
    callbacks: list[keras.callbacks.Callback],
    on_steps: OnSteps,
    weigh: Step | None = None,
    keeper: Keeper | None = None,
) -> dict[str, list[Any]]:
    """Train ``model`` as its own ``fit`` would.

    Args:
        model: A compiled model, made in the scope of its strategy.
        data: This worker's batches.
        epochs: Number of epochs.
        validation: This worker's batches for the validation after each epoch.
        callbacks: Keras callbacks.
        on_steps: Called as steps of the training are done.
        weigh: What is done with each batch of the training before its step, in the graph.
        keeper: What keeps checkpoints; ``data`` begins with its first step.

    Raises:
        JobStoppedError: The job was told to end.

    Returns:
        Values of the logs by name, one for each epoch.
    """
    extended = _own_extended(model)
    calls = extended.calls if extended else None
    if calls:
        calls.prepare(model, callbacks)
    if extended or (keeper and keeper.found):
        build(model, data.dataset)
    listed = keras.callbacks.CallbackList(
        callbacks, add_history=True, epochs=epochs, steps=data.steps, verbose=0, model=model
    )
    if calls:
        fields = {
            "steps_per_epoch": data.steps,
            "examples are read": _how_read(data),
            "validation_steps": validation.steps if validation else "none",
            "validation examples are read": _how_read(validation) if validation else "none",
        }
        calls.ready(model, listed, data.dataset, fields, training=True)
    train = _Phase(model, "train", data, listed, weigh, keeper)
    test = _Phase(model, "test", validation, listed) if validation else None
    model.stop_training = False
    if keeper:
        keeper.before_training(listed.callbacks, epochs)
    listed.on_train_begin()
    first, done = keeper.begin(model, listed.callbacks) if keeper else (0, 0)
    logs = last_logs(model)
    for epoch in range(max(first, _private.initial_epoch(model)), epochs):
        if model.stop_training:  # so the checkpoint says
            break
        reset_metrics(model)
        listed.on_epoch_begin(epoch)
        if keeper and done:
            keeper.restore(model, listed.callbacks)
        logs = train.run(on_steps, epoch, done)
        done = 0
        if test:
            listed.on_test_begin()
            reset_metrics(model)
            found = test.run(lambda step, logs: None)
            listed.on_test_end(found)
            logs |= {f"val_{name}": value for name, value in found.items()}
        listed.on_epoch_end(epoch, logs)
        if keeper:
            keeper.after_epoch(model, listed.callbacks, epoch, train.done)
        if model.stop_training:
            break
    if isinstance(model.optimizer, keras.optimizers.Optimizer):
        model.optimizer.finalize_variable_values(model.trainable_weights)
    listed.on_train_end(logs)
    return dict(model.history.history)


def fit_by_keras(
    model: keras.Model,
    data: WorkerData,
    *,
    epochs: int,
    validation: WorkerData | None,
    callbacks: list[keras.callbacks.Callback],
    on_steps: OnSteps,
    weigh: Step | None = None,
    keeper: Keeper | None = None,
) -> dict[str, list[Any]]:
    """The same by the model's own ``fit``, with checkpoints after epochs."""

    class Listener(keras.callbacks.Callback):  # type: ignore[misc]
        decides = False  # so it needs no metrics of other workers

        remembers = False
        done = 0

        def on_train_begin(self, logs: Any = None) -> None:
            if keeper:
                keeper.begin(self.model, kept)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.done = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.done = batch + 1
            progress()
            on_steps(batch + 1, logs)

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            progress()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if keeper:
                keeper.after_epoch(self.model, kept, epoch, self.done)

    begins: dict[str, int] = {}
    kept = callbacks
    if keeper:
        kept = [keras.callbacks.History(), *callbacks]  # so that it comes before the listener
        keeper.before_training(kept, epochs)
        begins["initial_epoch"] = epochs if keeper.ended else keeper.start.epoch
        if keeper.found:
            build(model, data.dataset)
    history = model.fit(
        data.dataset.map(lambda *batch: weigh(batch)) if weigh else data.dataset,
        epochs=epochs,
        steps_per_epoch=data.steps,
        validation_data=validation.dataset if validation else None,
        validation_steps=validation.steps if validation else None,
        shuffle=False,  # the data is; Keras would warn
        callbacks=[*kept, Listener()],
        verbose=0,
        **begins,
    )
    return dict(history.history)


class _Phase:
    """The training, or the validation, of one epoch after the other.

    Args:
        model: The model.
        kind: "train" or "test", as Keras calls it.
        data: The batches.
        callbacks: All callbacks.
        weigh: What is done with a batch before its step.
        keeper: What keeps checkpoints.

    Attributes:
        done: How many steps of the epoch are done.
    """

    def __init__(
        self,
        model: keras.Model,
        kind: str,
        data: WorkerData,
        callbacks: keras.callbacks.CallbackList,
        weigh: Step | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.done = 0
        self._keeper = keeper
        self._callbacks = callbacks
        self._model = model
        self._kind = kind
        self._data = data
        first = keeper.first_step if keeper else 0
        self._steps = Steps(model, getattr(model, f"{kind}_step"), data, weigh, first)
        self._execution = int(model.steps_per_execution)
        self._by_batch = any(wants_batches(callback, kind) for callback in callbacks.callbacks)
        self._batch_begins = getattr(callbacks, f"on_{kind}_batch_begin")
        self._batch_ended = getattr(callbacks, f"on_{kind}_batch_end")

    def run(self, on_steps: OnSteps, epoch: int = 0, done: int = 0) -> dict[str, Any]:
        """Make the steps of one epoch, of which ``done`` are made already, and return its logs."""
        stop = "stop_training" if self._kind == "train" else "stop_evaluating"
        if self._kind == "test":
            self._model.stop_evaluating = False
        total = self._data.steps
        if self._kind == "test" or total is None:  # else the training goes on in its data
            self._steps.rewind()
        # After a checkpoint at the end of data of unknown length no step is made.
        logs: Any = self._keeper.logs if self._keeper and done else {}
        if self._keeper:
            self._keeper.begin_epoch(done, self._execution)
        while total is None or done < total:
            wanted = self._execution if self._by_batch else max(self._execution, self._steps.pace)
            wanted = wanted if total is None else min(wanted, total - done)
            wanted = min(wanted, self._keeper.until(done)) if self._keeper else wanted
            if self._by_batch:
                self._batch_begins(done)
            made, last = self._steps.run(wanted)
            progress()
            if made:
                done, logs = done + made, last
                if self._by_batch:
                    self._batch_ended(done - 1, logs)
                on_steps(done, logs)
            if made < wanted or getattr(self._model, stop):
                break
            if self._keeper and done != total:
                kept = logs if total is None else None
                self._keeper.after_steps(self._model, self._callbacks.callbacks, epoch, done, kept)
        self.done = done
        extended = _own_extended(self._model)
        if extended is None or extended.collectives is None:
            return _private.metrics_or_logs(self._model, logs)
        with extended.knowing(extended.read_together(self._model.metrics_variables)):
            return _private.metrics_or_logs(self._model, logs)


class Steps:
    """Steps of a model on a worker's batches, many of them in one call of TensorFlow.

    Args:
        model: The model.
        step: Its ``train_step`` or ``test_step``.
        data: The batches.
        weigh: What is done with a batch before.
        first: The number of the first step, counted over all epochs, with which ``data.dataset`` begins.

    Attributes:
        pace: How many steps may be asked for, so that they take about ``CALL_SECONDS``.
    """

    def __init__(
        self, model: keras.Model, step: Step, data: WorkerData, weigh: Step | None = None, first: int = 0
    ) -> None:
        self.pace = 1
        self._data = data
        self._spec = data.dataset.element_spec
        self._next = first
        self._iterator: Iterator[Any] | None = None
        # Without a known end, or eagerly, Python looks at each batch.
        self._each_alone = data.steps is None or model.run_eagerly
        self._at_a_time = 0
        if data.arrays and not self._each_alone:
            self._at_a_time = GATHERED_BYTES // max(1, data.arrays.most_bytes)
        strategy, extended = model.distribute_strategy, _own_extended(model)
        never_empty = data.arrays is not None and data.arrays.never_empty
        alone = extended is None or extended.collectives is None

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def one(batch: Any, rows: tf.Tensor | None = None) -> Any:
            with (
                extended.knowing_rows(rows, never_empty) if extended else contextlib.nullcontext(),
                _private.fewer_passes(model, after_all_gradients=alone),
            ):
                return strategy.run(step, args=(weigh(batch) if weigh else batch,))

        compiled = tf.function(one, reduce_retracing=True, jit_compile=model.jit_compile)
        self._one = one if model.run_eagerly else compiled
        self._of_iterator = tf.function(self._loop_over_iterator, autograph=False)
        self._of_stack = tf.function(self._loop_over_stack, self._signature(), autograph=False)

    def rewind(self) -> None:
        """Begin the data anew."""
        self._next, self._iterator = 0, None

    def run(self, count: int) -> tuple[int, Any]:
        """Make ``count`` steps.

        Returns:
            How many were made (fewer if the data has ended), and the outputs of the last one.
        """
        began = time.monotonic()
        made, outputs = self._make(count)
        seconds = time.monotonic() - began
        self._next += made
        if made >= self.pace and 2 * seconds < CALL_SECONDS:
            self.pace *= 2
        elif made > 1 and seconds > 2 * CALL_SECONDS:
            self.pace = max(1, self.pace // 2)
        return made, outputs

    def _make(self, count: int) -> tuple[int, Any]:
        if self._at_a_time:
            return count, self._gathered(count)
        self._iterator = self._iterator or iter(self._data.dataset)
        if not self._each_alone:
            return count, self._of_iterator(self._iterator, tf.constant(count))
        outputs = None
        for made in range(count):
            batch = next(self._iterator, None)
            if batch is None:
                return made, outputs
            outputs = self._one(batch)
        return count, outputs

    def _gathered(self, count: int) -> Any:
        assert self._data.arrays is not None
        made, outputs = 0, None
        while made < count:
            step = self._next + made
            stack = self._data.arrays.batches(step, min(count - made, self._at_a_time))
            made += len(tf.nest.flatten(stack)[0])
            outputs = self._of_stack(stack, tf.constant(self._data.arrays.rows(step), tf.float32))
        return outputs

    def _signature(self) -> list[Any] | None:
        if not self._at_a_time:
            return None
        stack = tf.nest.map_structure(lambda part: tf.TensorSpec([None, *part.shape], part.dtype), self._spec)
        return [stack, tf.TensorSpec([], tf.float32)]

    def _loop_over_stack(self, stack: Any, rows: tf.Tensor) -> Any:
        count = tf.shape(tf.nest.flatten(stack)[0])[0]
        return self._loop(count, lambda i: (tf.nest.map_structure(lambda part: part[i], stack), rows))

    def _loop_over_iterator(self, iterator: Any, count: tf.Tensor) -> Any:
        return self._loop(count, lambda i: (iterator.get_next(),))

    def _loop(self, count: tf.Tensor, arguments: Callable[[tf.Tensor], tuple[Any, ...]]) -> Any:
        known = [tf.TensorSpec([], tf.float32)] if self._at_a_time else []
        one = self._one.get_concrete_function(self._spec, *known)
        form = one.structured_outputs
        nothing = tf.nest.map_structure(lambda part: tf.zeros([s or 0 for s in part.shape], part.dtype), form)
        shapes = tf.nest.map_structure(lambda part: part.shape, form)
        with _private.loop_of(one):
            _, outputs = tf.while_loop(
                lambda number, outputs: number < count,
                lambda number, outputs: (number + 1, self._one(*arguments(number))),
                (tf.constant(0), nothing),
                shape_invariants=(tf.TensorShape([]), shapes),
            )
        return outputs


def last_logs(model: keras.Model) -> dict[str, Any]:
    """The logs of the last epoch that the model's history has."""
    return {name: values[-1] for name, values in model.history.history.items() if values}


def reset_metrics(model: keras.Model) -> None:
    """Reset the metrics; TensorFlow then reads each of their variables, for which no peer need be asked."""
    extended = _own_extended(model)
    with extended.alone({}) if extended else contextlib.nullcontext():
        model.reset_metrics()


def _how_read(data: WorkerData) -> str:
    return "by index" if data.arrays else "in order"


def _own_extended(model: keras.Model) -> OneReplica | None:
    extended = model.distribute_strategy.extended
    return extended if isinstance(extended, OneReplica) else None


def build(model: keras.Model, dataset: tf.data.Dataset) -> None:
    """Make the model's weights and metrics before its step is traced, as Keras does under a strategy."""
    batch = batch_of_zeros(dataset.element_spec) if has_known_shapes(dataset) else next(iter(dataset))
    with model.distribute_strategy.scope():
        _private.build(model, batch)

"""The values of each training step that the trace of a run keeps: loss, gradient norms, learning rates."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.strategies.exact.tape_sums import current_graph

#: The values of a step: its loss, and for each optimizer those of ``OF_OPTIMIZER``.
LOSS = 0
#: The sum of the squares of the gradients as the optimizer gets them, -1 if it gets none; the factor by which
#: it has scaled the loss; the learning rate.
OF_OPTIMIZER = 3

Changed = Callable[[int, Sequence[Any], Any], None]


class StepTrace:
    """The values of one step: tensors of its graph, and a variable for those of functions that it calls.

    Optimizers get the gradients of the whole batch. The loss of this worker's rows is summed with the
    gradients, and has their weight.

    Args:
        on_gradients: Called, in the graph of the step, with the number of an optimizer, its gradients and
            its variables.

    Attributes:
        optimizers: The optimizers, in the order of their values.
        has_loss: Whether the step that was traced last shows a loss.
    """

    def __init__(
        self, model: keras.Model, on_gradients: Changed = lambda number, gradients, of: None
    ) -> None:
        self.optimizers = tf_internals.optimizers_of(model)
        self._on_gradients = on_gradients
        # The first loss of the step that is being traced, and its graph.
        self._loss: tf.Tensor | None = None
        self._graph: tf.Graph | None = None
        self._noted = self._scaled = False
        self.has_loss = False
        self._start = [float("nan")] + [-1.0, 1.0, 0.0] * len(self.optimizers)
        self._step: Any = None  # the graph of the step
        self._known: dict[int, tf.Tensor] = {}
        self._writes = False  # whether functions write the variable, which may have been traced before
        with tf.device(None if model.jit_compile else "CPU:0"):  # XLA on a GPU has no variables of the CPU
            self._values = tf.Variable(self._start, dtype=tf.float64, trainable=False, name="trace")

    @property
    def width(self) -> int:
        """Number of the values of a step."""
        return len(self._start)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record the step that runs, or is traced, within the context."""
        self.begin_rows()
        self._step, self._known = current_graph(), {}
        with contextlib.ExitStack() as stack:
            for number, optimizer in enumerate(self.optimizers):
                for name, hook in (("apply", self._apply), ("scale_loss", self._scale_loss)):
                    own = hook(number, getattr(optimizer, name))
                    stack.enter_context(tf_internals.overridden(optimizer, name, own))
            gradient = self._gradient(tf.GradientTape.gradient)
            stack.enter_context(tf_internals.overridden(tf.GradientTape, "gradient", gradient))
            yield

    def begin_rows(self) -> None:
        """Record the loss of further rows of the step: a share's, if shares run eagerly one by one."""
        self._loss, self._noted, self._scaled = None, False, False

    def values(self) -> tf.Tensor:
        """Return the values of the step, at its end."""
        for loss in self.take_loss():
            self.note_loss(loss)
        with tf.device(self._values.device):
            if not self._writes:
                return _stack([self._known.get(place, value) for place, value in enumerate(self._start)])
            written = self._values.read_value()
            with tf.control_dependencies([written]):
                self._values.assign(self._start)
            places = enumerate(tf.unstack(written))
            return _stack([self._combined(place, value) for place, value in places])

    def _combined(self, place: int, written: tf.Tensor) -> tf.Tensor:
        """Return a value that the step has, the variable, or both."""
        if place not in self._known:
            return written
        adds = place % OF_OPTIMIZER == LOSS + 1
        known = tf.cast(self._known[place], tf.float64)
        return known + tf.maximum(written, 0.0) if adds else known

    def take_loss(self) -> list[tf.Tensor]:
        """Return the loss of this worker's rows to sum it over the workers; nothing if there is none."""
        loss, self._loss = self._loss, None
        if loss is None or not tf_internals.is_part_of(current_graph(), self._graph):
            return []
        self._noted = True
        total = tf.reduce_sum(loss)
        return [total if total.dtype.size >= tf.float32.size else tf.cast(total, tf.float32)]

    def note_loss(self, loss: tf.Tensor) -> None:
        """Record the loss of the whole batch."""
        self.has_loss = True
        self._write(LOSS, [loss])

    def _see_loss(self, loss: object) -> None:
        if not self._noted and isinstance(loss, tf.Tensor) and loss.dtype.is_floating:
            self._loss, self._graph = tf.stop_gradient(loss), current_graph()

    def _scale_loss(self, number: int, own: Callable[..., object]) -> Callable[..., object]:
        def scale_loss(loss: object) -> Any:
            if not self._scaled:
                self._see_loss(loss)
            self._scaled = True
            return own(loss)

        return scale_loss

    def _gradient(self, own: Callable[..., object]) -> Callable[..., object]:
        def gradient(
            tape: tf.GradientTape, target: object, sources: object, *args: object, **kwargs: object
        ) -> Any:
            of_weights = any(isinstance(s, keras.Variable | tf.Variable) for s in tf.nest.flatten(sources))
            if of_weights and self._loss is None and not self._scaled and not tf_internals.tape_is_active():
                self._see_loss(target)
            return own(tape, target, sources, *args, **kwargs)

        return gradient

    def _apply(self, number: int, own: Callable[..., object]) -> Callable[..., object]:
        optimizer = self.optimizers[number]

        def apply(grads: Sequence[object], trainable_variables: object = None) -> Any:
            grads = tf_internals.as_tensors(grads)
            known = [grad for grad in grads if grad is not None]
            if known:
                scale = getattr(optimizer, "dynamic_scale", None)
                values = [_squares(known), 1.0 if scale is None else scale, optimizer.learning_rate]
                self._write(LOSS + 1 + OF_OPTIMIZER * number, values, adds=True)
                self._on_gradients(number, grads, trainable_variables)
            return own(grads, trainable_variables)

        return apply

    def _write(self, first: int, values: Sequence[Any], *, adds: bool = False) -> None:
        """Keep values; the first one is added if there is one, as an optimizer may work several times."""
        values = [tf.convert_to_tensor(value) for value in values]  # the step may change variables later
        if current_graph() is self._step:
            if adds and first in self._known:
                values[0] += self._known[first]
            self._known |= dict(enumerate(values, first))
            return
        self._writes = True
        with tf.device(self._values.device):
            new = _stack(values)
            if adds:
                new += tf.one_hot(0, len(values), tf.maximum(self._values[first], 0.0), dtype=tf.float64)
            self._values.scatter_update(tf.IndexedSlices(new, tf.range(first, first + len(values))))


def _stack(values: Sequence[Any]) -> tf.Tensor:
    """Return numbers as one tensor, by few operations."""
    wide = any(tf.is_tensor(value) and value.dtype == tf.float64 for value in values)
    kind = tf.float64 if wide else tf.float32
    return tf.cast(tf.stack([tf.cast(value, kind) for value in values]), tf.float64)


def _squares(gradients: Sequence[Any]) -> tf.Tensor:
    """Return the sum of squares of gradients, whose rows with the same index are added first."""
    return 2.0 * tf.add_n([tf.cast(_half(gradient), tf.float32) for gradient in gradients])


def _half(gradient: Any) -> tf.Tensor:
    if not isinstance(gradient, tf.IndexedSlices):
        return _half_of_dense(gradient)
    rows = gradient.values
    indices, places = tf.unique(gradient.indices)
    return tf.cond(  # a sum of rows takes long, and workers have added those of the same index
        tf.equal(tf.size(indices), tf.size(places)),
        lambda: _half_of_dense(rows),
        lambda: _half_of_dense(tf.math.unsorted_segment_sum(rows, places, tf.size(indices))),
    )


def _half_of_dense(values: tf.Tensor) -> tf.Tensor:
    return tf.nn.l2_loss(tf.cast(values, tf.float32) if values.dtype.size < tf.float32.size else values)

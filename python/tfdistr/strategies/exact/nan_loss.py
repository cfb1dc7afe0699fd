"""The detection of the first loss that is not finite, its worker and its step, and of inputs with NaN.

A loss need not show missing inputs: depending on the kernels, relu turns NaN into 0.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from tfdistr.collectives.interface import Collectives

log = logging.getLogger("tfdistr")

# The parts of the inputs that are watched. The number of parts is not known when the variable is made.
_MOST = 16


class InputWatch:
    """A check of the inputs of every step of this worker: one sum for each part of numbers."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._has_logged = False
        with tf.device("CPU:0"):
            self._steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps_of_inputs")
            self._first = tf.Variable([0] * _MOST, dtype=tf.int64, trainable=False, name="first_missing")

    @property
    def variables(self) -> list[tf.Variable]:
        """The variables of the check."""
        return [self._steps, self._first]

    def begin(self) -> None:
        """Start to count steps."""
        self._has_logged = False
        self._steps.assign(0)
        self._first.assign(tf.zeros_like(self._first))

    def see(self, batch: object) -> None:
        """Check the inputs of a step, eagerly or in a graph."""
        inputs = batch[0] if isinstance(batch, tuple) else batch  # a step of the user takes any tuple
        named = keras.tree.flatten_with_path(inputs)
        parts = [(_name(path), part) for path, part in named if _has_numbers(part)][:_MOST]
        self._names = [name for name, _ in parts]
        if not parts:
            return
        missing = [_has_missing(part) for _, part in parts]
        with tf.device("CPU:0"):
            step = self._steps.assign_add(1, read_value=True)
            bad = tf.pad(tf.stack(missing), [[0, _MOST - len(parts)]])
            self._first.assign(tf.where(bad & (self._first == 0), step, self._first))

    @property
    def first(self) -> tf.Tensor:
        """For each part the first step with a missing value; 0 without."""
        return self._first.read_value()

    def describe(self) -> str:
        """Name the parts that have missing values, with their first step; empty without."""
        found = zip(self._names, self.first.numpy(), strict=False)
        return ", ".join(f"{name} (step {step})" for name, step in found if step > 0)

    def warn(self, described: str, worker: int | None = None) -> None:
        """Log, once, the missing values of a worker.

        Args:
            described: What ``describe()`` returned there.
            worker: The index of that worker; None if it has no peers.
        """
        if described and not self._has_logged:
            self._has_logged = True
            log.warning(
                "The inputs%s have missing values (NaN): %s. The loss need not show them, as relu and other "
                "layers may turn them into 0. Replace them, or leave these examples out.",
                "" if worker is None else f" of worker {worker}",
                described,
            )


def _name(path: tuple[object, ...]) -> str:
    return "x" + "".join(f"[{key!r}]" for key in path)


def _has_numbers(part: object) -> bool:
    return isinstance(part, tf.Tensor) and part.dtype.is_floating


def _has_missing(part: tf.Tensor) -> tf.Tensor:
    total = tf.reduce_sum(tf.cast(part, tf.float32) if part.dtype.size < 4 else part)
    # The sum is faster. It is NaN for infinite values of both signs as well.
    return tf.cond(
        tf.math.is_nan(total), lambda: tf.reduce_any(tf.math.is_nan(part)), lambda: tf.constant(False)
    )


log = logging.getLogger("tfdistr")


class LossWatch:
    """A check of every loss of this worker in the training step, which adds two small operations per step.

    Attributes:
        inputs: The check of the inputs.
    """

    def __init__(self, collectives: Collectives) -> None:
        self._collectives = collectives
        self._has_logged = False
        self.inputs = InputWatch()
        with tf.device("CPU:0"):
            self._steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="watched_steps")
            self._first = tf.Variable(0, dtype=tf.int64, trainable=False, name="step_without_loss")

    @property
    def variables(self) -> list[tf.Variable]:
        """The variables of the watch: the number of steps, and the step of the first bad loss."""
        return [self._steps, self._first]

    def begin(self) -> None:
        """Start to count steps."""
        self._has_logged = False
        self.inputs.begin()
        self._steps.assign(0)
        self._first.assign(0)

    def see(self, loss: tf.Tensor, present: tf.Tensor, *, is_first: bool = True) -> None:
        """Check a loss of a step, if this worker has examples (``present``)."""
        self.note(present & ~tf.reduce_all(tf.math.is_finite(loss)), is_first=is_first)

    def note(self, bad: tf.Tensor, *, is_first: bool = True) -> None:
        """Count a step, if this is its first loss, and whether its loss is not finite."""
        with tf.device("CPU:0"):
            step = self._steps.assign_add(1 if is_first else 0, read_value=True)
            self._first.assign(tf.where(bad & (self._first == 0), step, self._first))

    def numbers(self, logs: Mapping[str, object]) -> tuple[int, int, int]:
        """Return what the peers must know: the first step with a bad loss, and two flags.

        Args:
            logs: The logs of an epoch. If they are finite on all workers, a loss that was not finite did no
                harm: an optimizer that scales the loss, or the user's step, has left it out.
        """
        finite = all(map(_is_finite, logs.values()))
        return int(self._first.numpy()), int(not finite), int(self.inputs.first.numpy().any())

    def report(self, table: np.ndarray) -> None:
        """Log once what was not finite, from the ``numbers()`` of each worker. All workers must call it."""
        if table[:, 2].any():
            for worker, text in enumerate(self._collectives.exchange(self.inputs.describe())):
                self.inputs.warn(text, worker)
        first = {worker: int(step) for worker, step in enumerate(table[:, 0]) if step > 0}
        if first and table[:, 1].any() and not self._has_logged:
            self._has_logged = True
            worker, step = min(first.items(), key=lambda item: item[1])
            log.warning(
                "The loss of worker %d is not finite since step %d of this training. Check the examples of "
                "that step, or lower the learning rate; keras.callbacks.TerminateOnNaN() stops such a "
                "training.",
                worker,
                step,
            )


def _is_finite(value: object) -> bool:
    try:
        return bool(np.isfinite(np.asarray(value, float)).all())
    except (TypeError, ValueError):  # a log of the user that is no number
        return True

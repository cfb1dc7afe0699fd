"""The detection of missing values (NaN) in the inputs of a training.

A loss need not show them: depending on the kernels, relu turns NaN into 0.
"""

from __future__ import annotations

import logging

import keras
import tensorflow as tf

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

"""The detection of the first loss that is not finite: its worker and its step."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tfdistr.collectives.interface import Collectives
from tfdistr.strategies.exact.nan_inputs import InputWatch

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

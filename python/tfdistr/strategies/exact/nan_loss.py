"""The detection of the first loss that is not finite: its worker and its step."""

from __future__ import annotations

import logging

import tensorflow as tf

from tfdistr.collectives.interface import Collectives

log = logging.getLogger("tfdistr")


class LossWatch:
    """A check of every loss of this worker in the training step, which adds two small operations per step."""

    def __init__(self, collectives: Collectives, num_workers: int, index: int) -> None:
        self._collectives = collectives
        self._workers = num_workers
        self._index = index
        self._has_logged = False
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
        self._steps.assign(0)
        self._first.assign(0)

    def see(self, loss: tf.Tensor, present: tf.Tensor) -> None:
        """Check the loss of a step; ``present`` is false if this worker has no examples in it."""
        self.note(present & ~tf.reduce_all(tf.math.is_finite(loss)))

    def note(self, bad: tf.Tensor) -> None:
        """Count a step, and whether its loss is not finite."""
        with tf.device("CPU:0"):
            step = self._steps.assign_add(1, read_value=True)
            self._first.assign(tf.where(bad & (self._first == 0), step, self._first))

    def report(self) -> None:
        """Log once, on all workers, which worker had a loss that is not finite. All workers must call it."""
        own = tf.one_hot(self._index, self._workers, on_value=self._first, off_value=tf.constant(0, tf.int64))
        (steps,) = self._collectives.all_reduce(tf.distribute.ReduceOp.SUM, [own])
        first = {worker: int(step) for worker, step in enumerate(steps) if step > 0}
        if first and not self._has_logged:
            self._has_logged = True
            worker, step = min(first.items(), key=lambda item: item[1])
            log.warning(
                "The loss of worker %d is not finite since step %d of this training. Check the examples of "
                "that step, or lower the learning rate; keras.callbacks.TerminateOnNaN() stops such a "
                "training.",
                worker,
                step,
            )

"""The examples of each global batch. They depend on (seed, pass, step) and on nothing else.

A pass uses every example once. Its batches have ``batch_size`` examples. The last batch has the remaining
examples; with ``drop_remainder`` it is dropped if it is not full. Passes follow each other as long as there
are steps. If the data is shuffled, each pass has another order. No batch has examples of two passes. An
epoch is a pass, unless the user fixed its steps: then an epoch begins where the epoch before ended.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from tfdistr.data.order.shard import Own, bounds
from tfdistr.data.order.steps import steps_per_epoch
from tfdistr.data.trees import Array


@dataclass(frozen=True)
class Order:
    """The order of ``examples`` examples, pass by pass, in global batches.

    Attributes:
        examples: Number of examples; at least 1.
        batch_size: Examples of a global batch. The last batch of a pass may be smaller.
        seed: Seed of the shuffles.
        shuffle: Whether each pass has another random order; otherwise the examples keep their order.
        drop_remainder: Whether a last batch with fewer than ``batch_size`` examples is dropped.
    """

    examples: int
    batch_size: int
    seed: int = 0
    shuffle: bool = False
    drop_remainder: bool = False

    @functools.cached_property
    def batches(self) -> int:
        """Number of global batches in a pass over the examples."""
        return steps_per_epoch(self.examples, self.batch_size, self.drop_remainder)

    def rows(self, step: tf.Tensor) -> tf.Tensor:
        """Return the number of examples in global batch ``step``, a scalar int64 tensor."""
        left = self.examples - step % self.batches * self.batch_size
        return tf.minimum(tf.constant(self.batch_size, tf.int64), left)

    def examples_before(self, step: int, shares: int = 1, own: Own = 0) -> int:
        """Return the number of examples that a worker takes before global batch ``step``; see ``bounds``."""
        first, end = bounds(self.batch_size, shares, own)
        last_first, last_end = bounds(int(self.rows(self.batches - 1)), shares, own)
        whole, batches = divmod(step, self.batches)
        short = (end - first) - (last_end - last_first)
        return int((whole * self.batches + batches) * (end - first) - whole * short)

    def indices(self, step: tf.Tensor, shares: int = 1, own: Own = 0) -> tf.Tensor:
        """Return the indices of a worker's examples in global batch ``step``, counted over all passes."""
        number, batch = step // self.batches, step % self.batches
        start = batch * self.batch_size
        first, end = bounds(self.rows(step), shares, own)
        if not self.shuffle or self.examples == 1:
            return tf.range(start + first, start + end)
        # index_shuffle refuses an empty list, so a worker without rows looks up one index and drops it.
        positions = tf.range(start + first, start + tf.maximum(end, first + 1))
        seed = tf.stack([tf.constant(self.seed, tf.int64), number])
        shuffled = tf.random.experimental.index_shuffle(positions, seed, self.examples - 1)
        return shuffled[: end - first]

    def alike(self, step: int) -> int:
        """Return the number of batches from ``step`` on that have the same size and are in the same pass."""
        batch = step % self.batches
        return max(min(self.batches, self.examples // self.batch_size) - batch, 1)

    def block(self, step: int, count: int, shares: int = 1, own: Own = 0) -> Array:
        """Return the ``indices`` of up to ``count`` steps from ``step`` on that are ``alike``."""
        number, batch = divmod(step, self.batches)
        start = batch * self.batch_size
        first, end = bounds(min(self.batch_size, self.examples - start), shares, own)
        starts = start + self.batch_size * np.arange(min(count, self.alike(step)))
        positions = starts[:, np.newaxis] + np.arange(first, end)
        if not self.shuffle or self.examples == 1 or positions.size == 0:
            return positions
        with tf.device("CPU:0"):
            shuffled = tf.random.experimental.index_shuffle(
                positions.reshape(-1), tf.constant([self.seed, number], tf.int64), self.examples - 1
            )
        found: Array = shuffled.numpy().reshape(positions.shape)
        return found

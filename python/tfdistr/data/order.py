"""Which examples make which global batch: a function of (seed, pass, step) and of nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from tfdistr.data.shard import bounds


@dataclass(frozen=True)
class Order:
    """The order in which ``examples`` examples are used, pass by pass, in global batches.

    Attributes:
        examples: Number of examples; at least 1.
        batch_size: Examples of a global batch. The last batch of a pass may be smaller.
        seed: Seed of the shuffles.
        shuffle: Whether each pass has an order of its own; otherwise the examples come as they are.
    """

    examples: int
    batch_size: int
    seed: int = 0
    shuffle: bool = False

    @property
    def batches(self) -> int:
        """Number of global batches in a pass over the examples."""
        return -(-self.examples // self.batch_size)

    def indices(self, step: tf.Tensor, num_workers: int = 1, index: int = 0) -> tf.Tensor:
        """Indices of the examples that worker ``index`` takes of global batch ``step``.

        ``step`` counts on from pass to pass, and any step is found at once, without the ones before.

        Args:
            step: Scalar int64 tensor.
            num_workers: Number of workers that share the batch.
            index: Index of the worker.

        Returns:
            An int64 tensor with one index for each of the worker's examples.

        Source: the permutation is that of ``tf.random.experimental.index_shuffle``.
        """
        number, batch = step // self.batches, step % self.batches
        start = batch * self.batch_size
        rows = tf.minimum(tf.constant(self.batch_size, tf.int64), self.examples - start)
        first, end = bounds(rows, num_workers, index)
        if not self.shuffle or self.examples == 1:
            return tf.range(start + first, start + end)
        # index_shuffle refuses an empty list, so a worker without rows looks one up and drops it.
        positions = tf.range(start + first, start + tf.maximum(end, first + 1))
        seed = tf.stack([tf.constant(self.seed, tf.int64), number])
        shuffled = tf.random.experimental.index_shuffle(positions, seed, self.examples - 1)
        return shuffled[: end - first]

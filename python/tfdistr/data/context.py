"""What a data function ``x(ctx)`` is told about its worker."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import tensorflow as tf

from tfdistr.arguments import optional_whole
from tfdistr.data.shard import bounds
from tfdistr.errors import DataShardError

log = logging.getLogger("tfdistr")


@dataclass
class WorkerContext:
    """The worker that a data function makes its dataset for.

    Attributes:
        num_workers: Number of workers that train.
        index: Index of this worker; the chief is 0.
        global_batch_size: Examples of a batch over all workers; None if the function makes batches.
        seed: The seed of the job.
        shuffle: Whether the examples are to be shuffled.
    """

    num_workers: int
    index: int
    global_batch_size: int | None
    seed: int = 0
    shuffle: bool = True
    _examples: int | None = field(default=None, repr=False)

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker with index 0."""
        return self.index == 0

    @property
    def batch_size(self) -> int | None:
        """This worker's examples of a full global batch; None if the function makes batches."""
        if self.global_batch_size is None:
            return None
        first, end = bounds(self.global_batch_size, self.num_workers, self.index)
        return int(end - first)

    def shard(self, dataset: tf.data.Dataset, shuffle_buffer: int | None = None) -> tf.data.Dataset:
        """This worker's share of the examples, so that what follows runs for these alone.

        Put it before an expensive ``map``: each worker then reads names or records, and decodes only
        its own. The global batches stay those of one worker; shuffling is done here too, before the
        split. After it, keep one example one example (``map``, no ``filter`` or ``repeat``).

        Args:
            dataset: Examples, not batched, in the same order on every worker; a finite number.
            shuffle_buffer: Number of examples that are held in memory to be shuffled; by default all.

        Returns:
            The examples of this worker, in the order of the global batches.

        Raises:
            ArgumentError: ``shuffle_buffer`` is not a number of at least 1.
            DataShardError: The dataset is infinite or empty, or the function makes batches itself.

        Example:
            >>> def x(ctx):
            ...     files = ctx.shard(tf.data.Dataset.from_tensor_slices(names))
            ...     return files.map(read_and_decode)
        """
        buffer = optional_whole("shuffle_buffer", shuffle_buffer)
        size = self.global_batch_size
        if size is None:
            raise DataShardError(
                "ctx.shard() splits examples by global batches, so it needs a batch size.",
                received="batch_size=None (the function makes batches)",
                fix="Pass batch_size to distributed_fit() and return examples, not batches.",
            )
        examples = int(dataset.cardinality())
        if examples == tf.data.INFINITE_CARDINALITY:
            raise DataShardError(
                "ctx.shard() needs a finite dataset.",
                received="a dataset that repeats for ever",
                fix="Leave repeat() out; distributed_fit() repeats the data as steps_per_epoch asks.",
            )
        if examples < 0:
            log.info("ctx.shard: counting the examples once, for the dataset does not know their number")
            examples = int(dataset.reduce(tf.constant(0, tf.int64), lambda n, *_: n + 1))
        if examples == 0:
            raise DataShardError(
                "ctx.shard() needs at least one example.",
                received="an empty dataset",
                fix="Look at what the function reads.",
            )
        self._examples = examples
        if self.shuffle:
            dataset = dataset.shuffle(buffer or examples, seed=self.seed, reshuffle_each_iteration=True)
        count, num_workers, index = tf.constant(examples, tf.int64), self.num_workers, self.index

        def mine(position: tf.Tensor, *_: object) -> tf.Tensor:
            start = position // size * size
            first, end = bounds(tf.minimum(tf.constant(size, tf.int64), count - start), num_workers, index)
            return (position - start >= first) & (position - start < end)

        return dataset.enumerate().filter(mine).map(lambda _, example: example)

    @property
    def sharded_examples(self) -> int | None:
        """Number of examples of all workers that ``shard`` split; None if it was not called."""
        return self._examples

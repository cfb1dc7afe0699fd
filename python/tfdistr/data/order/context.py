"""The context: the information of a data function ``x(ctx)`` about its worker."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.data.order.shard import Own, bounds, check_order
from tfdistr.data.order.shuffle_order import Order
from tfdistr.data.pipeline import stream
from tfdistr.data.pipeline.random_access import lookup
from tfdistr.errors import DataShardError
from tfdistr.utils.arguments import check_optional_int

log = logging.getLogger("tfdistr")


@dataclass
class Reading:
    """One reading of the data by one worker: its start, and the results of ``ctx.shard()``.

    Attributes:
        start: The number of the first step, counted over all epochs.
        shares: The datasets that ``ctx.shard()`` returned.
        order: The order of their examples.
        passes: Number of passes. It is 1 while the function runs, so that the function itself can read the
            dataset to its end.
        counts_readings: Whether the dataset has a shuffle whose order depends on how often it was read.
        of_known_size: Whether the number of steps must be known, also for one worker.
    """

    start: int = 0
    shares: list[tf.data.Dataset] = field(default_factory=list)
    order: Order | None = None
    passes: int = 1
    counts_readings: bool = False
    of_known_size: bool = False


@dataclass(frozen=True)
class WorkerContext:
    """The worker for which a data function makes its dataset.

    Attributes:
        num_workers: Number of workers that train.
        index: Index of this worker; the chief is 0.
        virtual_workers: This worker's virtual workers, and the number of all of them; None without them.
        global_batch_size: Examples of a batch over all workers; None if the function makes batches.
        seed: The seed of the job.
        shuffle: Whether the examples are shuffled.
        drop_remainder: Whether an incomplete last batch of a pass is dropped.
    """

    num_workers: int
    index: int
    global_batch_size: int | None
    seed: int = 0
    shuffle: bool = True
    drop_remainder: bool = False
    virtual_workers: tuple[range, int] | None = None
    _reading: Reading = field(default_factory=Reading, repr=False, compare=False)

    @property
    def is_chief(self) -> bool:
        """Return whether this is the worker with index 0."""
        return self.index == 0

    @property
    def place(self) -> tuple[int, Own]:
        """The number of shares of a batch, and this worker's share or shares; see ``bounds``."""
        if self.virtual_workers is None:
            return self.num_workers, self.index
        own, shares = self.virtual_workers
        return shares, own

    @property
    def batch_size(self) -> int | None:
        """Number of this worker's examples of a full global batch; None if the function makes batches."""
        if self.global_batch_size is None:
            return None
        first, end = bounds(self.global_batch_size, *self.place)
        return int(end - first)

    def shard(self, dataset: tf.data.Dataset, shuffle_buffer: int | None = None) -> tf.data.Dataset:
        """Take this worker's share of the examples, so that later steps run only for this share.

        Put it before an expensive ``map``: then each worker decodes only its own examples. The global
        batches are the same as with a single worker. It also shuffles, before the split. After it, one
        example must stay one example (``map``, no ``filter`` or ``repeat``). A ``cache`` after it keeps
        the examples of the first pass, so that each pass has the order of the first.

        Examples of tensors, lists of names and the results of ``map`` on them are looked up by index, and
        all of them are shuffled. Every worker reads the examples of files and generators in order.

        Args:
            dataset: Examples, not batched, in the same order on every worker; a finite number.
            shuffle_buffer: Number of examples in memory for the shuffle, if the examples are read in
                order; by default all.

        Returns:
            The examples of this worker, in the order of the global batches.

        Raises:
            ArgumentError: ``shuffle_buffer`` is not a number of at least 1.
            DataShardError: The dataset is infinite or empty, or shuffled without a seed; or the function
                makes batches itself.

        Example:
            >>> def x(ctx):
            ...     files = ctx.shard(tf.data.Dataset.from_tensor_slices(names))
            ...     return files.map(read_and_decode)
        """
        buffer = check_optional_int("shuffle_buffer", shuffle_buffer)
        if self.global_batch_size is None:
            raise DataShardError(
                "ctx.shard() splits examples by global batches, so it needs a batch size.",
                received="no batch_size: the data set of the function is taken as ready batches",
                fix="Pass batch_size to distributed_fit() and return examples, not batches.",
            )
        examples = int(dataset.cardinality())
        if examples == tf.data.INFINITE_CARDINALITY:
            raise DataShardError(
                "ctx.shard() needs a finite dataset.",
                received="a dataset that repeats forever",
                fix="Leave repeat() out; distributed_fit() repeats the data as steps_per_epoch requires.",
            )
        by_index = lookup(dataset)
        if by_index is None:
            check_order(dataset, self.num_workers)
        if examples < 0:
            log.info("ctx.shard: counting the examples once, because their number is not known; "
                     "use tf.data.experimental.assert_cardinality() to avoid it")  # fmt: skip
            examples = stream.count(dataset)
        order = order_of(self, examples, "ctx.shard()")
        if by_index is None:
            share = _read_in_order(self, dataset, order, buffer or examples)
        else:
            start = self._reading.start

            def steps(number: tf.Tensor) -> tf.data.Dataset:
                first = tf.maximum(number * order.batches, start)
                return tf.data.Dataset.range(first, (number + 1) * order.batches)

            used = stream.passes(steps, start // order.batches, lambda: self._reading.passes)
            share = by_index.stream(used.map(lambda step: own_indices(self, order, step)))
        self._reading.order = order
        self._reading.shares.append(share)
        return share


def reading_of(context: WorkerContext) -> Reading:
    """Return the reading of the data that belongs to a context."""
    return context._reading


def order_of(context: WorkerContext, examples: int, what: str) -> Order:
    """Return the order of this number of examples."""
    assert context.global_batch_size is not None
    size, examples = context.global_batch_size, not_empty(examples, what)
    return Order(examples, size, context.seed, context.shuffle, context.drop_remainder)


# The conversion by AutoGraph would take a tenth of a second, and there is no control flow here.
@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def own_indices(context: WorkerContext, order: Order, step: tf.Tensor) -> tf.Tensor:
    """Return the indices of a worker's examples of a global batch."""
    return order.indices(step, *context.place)


def _read_in_order(
    context: WorkerContext, dataset: tf.data.Dataset, order: Order, buffer: int
) -> tf.data.Dataset:
    reading, place = reading_of(context), context.place

    def before(step: int) -> int:
        return order.examples_before(step, *place)

    reading.counts_readings = tf_internals.reshuffles(dataset)
    first, batches = divmod(reading.start, order.batches)
    if batches and before(reading.start) == before((first + 1) * order.batches):
        first, batches = first + 1, 0  # nothing is left of the pass, and an empty pass would be the last

    def of_pass(number: tf.Tensor) -> tf.data.Dataset:
        examples = dataset
        if context.shuffle:
            examples = stream.shuffled(dataset, buffer, context.seed, number)
        skipped = tf.where(number == first, tf.constant(batches, tf.int64), 0)
        return stream.own_examples(examples, order, *place, skipped)

    return stream.passes(of_pass, first, lambda: reading.passes)


def not_empty(size: int, what: str) -> int:
    """Return ``size`` if it is not 0."""
    if size == 0:
        raise DataShardError(
            f"{what} needs at least one example.",
            received="an empty dataset",
            fix="Check the data that the function reads.",
        )
    return size

"""What a data function ``x(ctx)`` is told about its worker."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import tensorflow as tf

from tfdistr import _private
from tfdistr.arguments import optional_whole
from tfdistr.data import stream
from tfdistr.data.host_memory import HostMemory
from tfdistr.data.lookup import lookup
from tfdistr.data.order import Order
from tfdistr.data.shard import bounds, check_order
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
        drop_remainder: Whether a last batch of a pass that is not full is left out.
    """

    num_workers: int
    index: int
    global_batch_size: int | None
    seed: int = 0
    shuffle: bool = True
    drop_remainder: bool = False
    # Where decoded examples are kept.
    _memory: HostMemory = field(default_factory=HostMemory, repr=False)
    # The global step of the first batch; what ``shard`` gave, its order, and how many passes it makes:
    # one while the function runs, so that what the function itself reads comes to an end.
    _start: int = field(default=0, repr=False)
    _shares: list[tf.data.Dataset] = field(default_factory=list, repr=False)
    _order: Order | None = field(default=None, repr=False)
    _passes: int = field(default=1, repr=False)
    # Whether what ``shard`` reads has a shuffle of its own, whose order depends on how often it was read.
    _counts_readings: bool = field(default=False, repr=False)

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

    def _order_of(self, examples: int, what: str) -> Order:
        """The order in which this many examples are used.

        Raises:
            ArgumentError: ``drop_remainder`` leaves no batch.
            DataShardError: There is no example.
        """
        assert self.global_batch_size is not None
        size, examples = self.global_batch_size, not_empty(examples, what)
        return Order(examples, size, self.seed, self.shuffle, self.drop_remainder)

    def shard(self, dataset: tf.data.Dataset, shuffle_buffer: int | None = None) -> tf.data.Dataset:
        """This worker's share of the examples, so that what follows runs for these alone.

        Put it before an expensive ``map``: each worker then decodes only its own examples. The global
        batches stay those of one worker; shuffling is done here too, before the split. After it, keep
        one example one example (``map``, no ``filter`` or ``repeat``). A ``cache`` after it keeps the
        examples of the first pass, so that each pass has the order of the first.

        Examples of tensors, lists of names and what ``map`` makes of them are looked up by their index
        and shuffled over all. Those of files and generators are read in order by every worker.

        Args:
            dataset: Examples, not batched, in the same order on every worker; a finite number.
            shuffle_buffer: Number of examples that are held in memory to be shuffled, where they are
                read in order; by default all.

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
        buffer = optional_whole("shuffle_buffer", shuffle_buffer)
        if self.global_batch_size is None:
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
        by_index = lookup(dataset)
        if by_index is None:
            check_order(dataset, self.num_workers)
        if examples < 0:
            log.info("ctx.shard: counting the examples once, for the dataset does not know their number; "
                     "use tf.data.experimental.assert_cardinality() to avoid it")  # fmt: skip
            examples = stream.count(dataset)
        order = self._order_of(examples, "ctx.shard()")
        if by_index is None:
            share = self._read_in_order(dataset, order, buffer or examples)
        else:
            share = by_index.stream(self._steps(order).map(lambda step: self._own_indices(order, step)))
        self._order = order
        self._shares.append(share)
        return share

    # To convert it to a graph's control flow, of which it has none, would take a tenth of a second.
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def _own_indices(self, order: Order, step: tf.Tensor) -> tf.Tensor:
        """Indices of this worker's examples of a global batch."""
        return order.indices(step, self.num_workers, self.index)

    def _steps(self, order: Order) -> tf.data.Dataset:
        """The steps for which ``shard`` gives examples."""

        def of_pass(number: tf.Tensor) -> tf.data.Dataset:
            first = tf.maximum(number * order.batches, self._start)
            return tf.data.Dataset.range(first, (number + 1) * order.batches)

        return stream.passes(of_pass, self._start // order.batches, lambda: self._passes)

    def _read_in_order(self, dataset: tf.data.Dataset, order: Order, buffer: int) -> tf.data.Dataset:
        def before(step: int) -> int:
            return order.examples_before(step, self.num_workers, self.index)

        self._counts_readings = _private.reshuffles(dataset)
        first, batches = divmod(self._start, order.batches)
        if batches and before(self._start) == before((first + 1) * order.batches):
            first, batches = first + 1, 0  # nothing is left of the pass, and an empty one would be the last

        def of_pass(number: tf.Tensor) -> tf.data.Dataset:
            examples = dataset
            if self.shuffle:
                examples = stream.shuffled(dataset, buffer, self.seed, number)
            skipped = tf.where(number == first, tf.constant(batches, tf.int64), 0)
            return stream.own_examples(examples, order, self.num_workers, self.index, skipped)

        return stream.passes(of_pass, first, lambda: self._passes)


def not_empty(size: int, what: str) -> int:
    """``size``, if it is not 0."""
    if size == 0:
        raise DataShardError(
            f"{what} needs at least one example.",
            received="an empty dataset",
            fix="Look at what the function reads.",
        )
    return size

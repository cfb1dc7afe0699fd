"""The conversion of the user's data to the batches of one worker.

Every source yields one stream of batches over all epochs. ``Order`` determines the examples of each batch. If
examples have an index (arrays, prepared data sets, pipelines of tensors), they are looked up: no worker reads
examples of another worker, and the stream can start at any step at once. Other examples can only be read in
order: every worker reads them from the start of the pass of the first step.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.data.datasets import Dataset
from tfdistr.data.form import Form
from tfdistr.data.order.context import Reading, WorkerContext, not_empty, order_of, own_indices, reading_of
from tfdistr.data.order.shard import distribute_batches, in_common_order, mark_share, rows_of_worker
from tfdistr.data.order.shuffle_order import Order
from tfdistr.data.pipeline import stream
from tfdistr.data.pipeline.batch_objects import GivenBatches, GivenDataset, Pull, is_py_dataset
from tfdistr.data.pipeline.fed_batches import FedBatches, fed_batches
from tfdistr.data.pipeline.file_examples import of_files
from tfdistr.data.pipeline.host_cache import HostMemory
from tfdistr.data.pipeline.index_batches import Batches, Indexed, of_arrays, of_lookup
from tfdistr.data.pipeline.random_access import batched, is_ragged, lookup
from tfdistr.data.readers.described import FileDataset
from tfdistr.data.readers.tfds_records import of_prepared
from tfdistr.data.source import Arrays, Source, gives_batches, make_source
from tfdistr.errors import ArgumentError, DataShardError
from tfdistr.utils.arguments import check_int
from tfdistr.utils.describe import describe

log = logging.getLogger("tfdistr")

#: Number of examples in the shuffle buffer for a stream of unknown or large size.
SHUFFLE_BUFFER = 10_000
#: The same for a data set of TensorFlow Datasets, whose stored order is already random.
STORED_SHUFFLE_BUFFER = 1_000

# Number of examples for each worker that `look` reads of a dataset of examples.
_LOOKED_AT = 8

# The nodes that may follow ctx.shard() without an end, and the nodes that may not follow it.
_ENDLESS = frozenset({"Map", "ParallelMap", "FlatMap", "Interleave", "ParallelInterleave", "Prefetch",
                      "Options", "Zip"})  # fmt: skip
_NOT_ONE_TO_ONE = frozenset({"Filter", "Repeat", "Take", "Skip", "Batch", "ParallelBatch", "PaddedBatch"})


@dataclass(frozen=True)
class WorkerData:
    """The batches of one worker, and the number of batches of an epoch.

    Attributes:
        made: This worker's rows of every global batch, or the function that makes the dataset of them.
        steps: Batches in an epoch; None if the dataset ends by itself after an epoch.
        arrays: The same batches by the number of their step, for a custom training loop. They cost less
            time than ``dataset``. None if the data has no such form.
        first: The number of the first step of ``dataset``, counted over all epochs.
        known_spec: The shapes and types of a batch, if they are known before ``dataset`` is made.
        given: This worker's rows of batches of the dataset that the user's function has returned.
    """

    made: tf.data.Dataset | FedBatches | Callable[[], tf.data.Dataset]
    steps: int | None
    arrays: Batches | None = None
    first: int = 0
    known_spec: object = None
    given: tf.data.Dataset | None = None

    @cached_property
    def dataset(self) -> tf.data.Dataset | FedBatches:
        """This worker's rows of every global batch. A loop that takes ``arrays`` does not need it."""
        return self.made() if callable(self.made) else self.made

    @property
    def element_spec(self) -> Any:
        """The shapes and types of a batch."""
        return self.dataset.element_spec if self.known_spec is None else self.known_spec

    @property
    def fed(self) -> bool:
        """Return whether Python or R code yields the batches."""
        return isinstance(self.made, FedBatches)

    @property
    def form(self) -> Form | None:
        """The form of batches of Python or R code; None for other data."""
        return self.made.form if isinstance(self.made, FedBatches) else None

    @property
    def example(self) -> Any:
        """The first batch."""
        return self.dataset.example if isinstance(self.dataset, FedBatches) else next(iter(self.dataset))

    def look(self) -> Any | None:
        """Read some of this worker's rows; None if that changes the order of the training."""
        if self.arrays is not None:
            return tf.nest.map_structure(tf.constant, self.arrays.batch(self.first))
        if isinstance(self.dataset, FedBatches):
            return self.dataset.look()
        return self.example if self.given is None else tf_internals.peek(self.given)


def make_data(
    source: Source,
    context: WorkerContext,
    steps: int | None = None,
    start: int = 0,
    *,
    name: str = "x",
    memory: HostMemory | None = None,
    of_known_size: bool = False,
    form: Form | None = None,
) -> WorkerData:
    """Make the batches of one worker, in the structure that Keras's ``fit`` gives to a step.

    From step ``start`` on, counted over all epochs, they are those of a stream from step 0. With ``steps``,
    those of an epoch, the data repeats as often as needed. Unless ``of_known_size``, the result has no
    ``steps`` where a single worker has data of unknown size. Batches of Python or R code get the columns and
    classes of ``form``.
    """
    start = check_int("start", start, minimum=0)
    reshuffles = isinstance(source, GivenDataset) and source.reshuffles
    reading = Reading(start, counts_readings=reshuffles, of_known_size=of_known_size)
    context = replace(context, _reading=reading)
    return replace(_make_data(source, context, steps, name, memory, form), first=start)


def _make_data(
    source: Source, context: WorkerContext, steps: int | None, name: str, memory: HostMemory | None,
    form: Form | None,
) -> WorkerData:  # fmt: skip
    if isinstance(source, Dataset):
        if isinstance(source, FileDataset):
            found = of_files(source, memory or HostMemory(), shuffle=context.shuffle)
            return _by_index(found, context, steps, name=name)
        if source.name == "digits":
            examples = source.arrays()  # 130 kB: each worker may have a copy
            source = make_source(*(examples if isinstance(examples, tuple) else (examples,)))
            assert isinstance(source, Arrays)
        elif prepared := of_prepared(source, memory or HostMemory()):
            return _by_index(prepared, context, steps)
        else:
            described = source
            source = lambda ctx: ctx.shard(described.dataset(), STORED_SHUFFLE_BUFFER)  # noqa: E731
    if isinstance(source, Arrays):
        return _by_index(of_arrays(source), context, steps)
    if gives_batches(source):
        context = replace(context, global_batch_size=None)
    return _Function(source, context, steps, name, form).data()


def _by_index(found: Indexed, context: WorkerContext, steps: int | None, *, name: str = "x") -> WorkerData:
    """Look up whole batches by their indices. Only the step decides which examples come next."""
    order = order_of(context, found.examples, f"`{name}`")

    def batch(step: tf.Tensor) -> Any:
        return found.batch(own_indices(context, order, step))

    if not found.parallel:  # otherwise the user's function may need AutoGraph
        batch = tf.autograph.experimental.do_not_convert(batch)

    def batches() -> tf.data.Dataset:
        numbers = tf.data.Dataset.counter(reading_of(context).start)
        looked_up = numbers.map(batch, num_parallel_calls=tf.data.AUTOTUNE if found.parallel else None)
        return mark_share(looked_up.prefetch(tf.data.AUTOTUNE))

    arrays = Batches(found.take, order, *context.place, ahead=found.ahead) if found.take else None
    made = batches() if found.element_spec is None else batches
    return WorkerData(made, steps or order.batches, arrays, known_spec=found.element_spec)


@dataclass(frozen=True)
class _Function:
    """The user's function, and how this worker reads its data."""

    function: Callable[..., Any]
    context: WorkerContext
    steps: int | None
    name: str
    form: Form | None = None

    @property
    def _reading(self) -> Reading:
        return reading_of(self.context)

    def _call(self) -> Any:
        return self.function(self.context) if _takes_context(self.function) else self.function()

    def data(self) -> WorkerData:
        dataset = self._call()
        if is_py_dataset(dataset) or isinstance(dataset, Iterator | Pull):
            again = self.function if isinstance(self.function, GivenBatches) else self._call
            return WorkerData(*fed_batches(again, dataset, self.context, self.steps, self.name, self.form))
        if not isinstance(dataset, tf.data.Dataset):
            raise ArgumentError(
                f"The function `{self.name}` must return a tf.data.Dataset, a PyDataset or a generator of "
                "batches.",
                received=f"a function that returned {describe(dataset)}",
                fix="Return tf.data.Dataset.from_tensor_slices((inputs, targets)), for example.",
            )
        shares, own = self.context.place
        has_batches = self.context.global_batch_size is None
        given = dataset if has_batches else dataset.batch(_LOOKED_AT * shares)
        return replace(self._of_dataset(dataset), given=rows_of_worker(given, shares, own))

    def _of_dataset(self, dataset: tf.data.Dataset) -> WorkerData:
        if self._reading.order is not None:
            return self._of_share(dataset, self._reading.order)
        if self.steps is None and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            argument = "validation_steps" if self.name == "validation_data" else "steps_per_epoch"
            raise ArgumentError(
                f"A dataset that never ends needs `{argument}`.",
                received=f"a dataset of the function `{self.name}` that repeats forever",
                fix=f"Leave repeat() out, or pass {argument}.",
            )
        if self.context.global_batch_size is None:
            return self._of_batches(dataset)
        if by_index := lookup(dataset):
            log.info("`%s`: each worker looks up its own examples by index", self.name)
            return _by_index(of_lookup(by_index), self.context, self.steps, name=self.name)
        return self._of_examples(dataset, self.context.global_batch_size)

    def _of_batches(self, dataset: tf.data.Dataset) -> WorkerData:
        """Use the batches that the user made, and take the rows of this worker."""
        _refuse_examples(dataset, self.name)
        size = self._size(dataset)
        own = distribute_batches(dataset, *self.context.place, self._call).prefetch(tf.data.AUTOTUNE)
        if size is None and self.steps is None:
            return WorkerData(mark_share(own), None)
        return self._in_passes(dataset, size, lambda number, skipped: own.skip(skipped))

    def _of_examples(self, given: tf.data.Dataset, size: int) -> WorkerData:
        """Read the examples in order, on every worker. Each worker keeps its rows of each batch."""
        context, dataset = self.context, in_common_order(given, *self.context.place)
        known = int(dataset.cardinality())
        buffer = known if 0 < known < SHUFFLE_BUFFER else SHUFFLE_BUFFER
        examples = self._size(given)
        order = order_of(context, examples, f"`{self.name}`") if examples else None
        ragged = is_ragged(given)

        def of_pass(number: tf.Tensor, skipped: tf.Tensor) -> tf.data.Dataset:
            used = stream.shuffled(dataset, buffer, context.seed, number) if context.shuffle else dataset
            batches = batched(used.skip(skipped * size), size, ragged, context.drop_remainder)
            return rows_of_worker(batches, *context.place).prefetch(tf.data.AUTOTUNE)

        if context.num_workers > 1:
            log.info("`%s`: every worker reads all examples and keeps its rows of each batch; ctx.shard() "
                     "before an expensive map lets it decode its own only", self.name)  # fmt: skip
        return self._in_passes(given, order.batches if order else None, of_pass)

    def _in_passes(
        self, given: tf.data.Dataset, size: int | None, of_pass: Callable[..., tf.data.Dataset]
    ) -> WorkerData:
        """Read pass by pass, each of ``size`` batches; ``of_pass`` skips batches of the first pass."""
        start = self._reading.start
        again = size is None or self._counts_readings(given)
        first, skipped = (0, 0) if again or size is None else divmod(start, size)

        def one_pass(number: tf.Tensor) -> tf.data.Dataset:
            return of_pass(number, tf.where(number == first, tf.constant(skipped, tf.int64), 0))

        endless = size is not None or self.steps is not None
        batches = stream.passes(one_pass, first) if endless else stream.one_pass_each_time(one_pass)
        if again and start:
            batches = batches.skip(start)
        return WorkerData(mark_share(_not_ahead(batches)), self.steps or size)

    def _of_share(self, dataset: tf.data.Dataset, order: Order) -> WorkerData:
        """Make batches of the share that ``ctx.shard`` returned, after the further steps of the function."""
        after = tf_internals.nodes_after(dataset, self._reading.shares)
        if wrong := sorted(after & _NOT_ONE_TO_ONE):
            raise DataShardError(
                "After ctx.shard(), one example must stay one example.",
                received=", ".join(wrong).lower(),
                fix="Call it before ctx.shard(); distributed_fit() makes batches and repeats the data.",
            )
        place, start = self.context.place, self._reading.start
        counts = self._counts_readings(dataset)
        if after <= _ENDLESS and not counts:
            self._reading.passes = -1
            batches = stream.in_batches(dataset, order, *place, start).prefetch(tf.data.AUTOTUNE)
            return WorkerData(mark_share(batches), self.steps or order.batches)
        # The later nodes need an end, such as a cache, or a shuffle counts its readings: so read pass by
        # pass, each with the examples of the first pass.
        if start:
            dataset = self.function(replace(self.context, _reading=Reading()))
        one_pass = stream.in_batches(dataset, order, *place, 0, order.batches).prefetch(tf.data.AUTOTUNE)
        batches = stream.passes(lambda number: one_pass).skip(start if counts else start % order.batches)
        return WorkerData(mark_share(_not_ahead(batches)), self.steps or order.batches)

    def _counts_readings(self, dataset: tf.data.Dataset) -> bool:
        """Return whether the order of a pass depends on how often the dataset was read before."""
        counts = self._reading.counts_readings or tf_internals.reshuffles(dataset)
        if counts and self._reading.start:
            log.warning(
                "`%s` has its own shuffle(), so it may resume in another order than without an interruption. "
                "Leave shuffling to tfdistr, or pass reshuffle_each_iteration=False.", self.name,
            )  # fmt: skip
        return counts

    def _size(self, dataset: tf.data.Dataset) -> int | None:
        """Return the number of elements; None if it is not known and not needed, or there is no end."""
        size = int(dataset.cardinality())
        if size == tf.data.INFINITE_CARDINALITY:
            return None
        if size < 0:
            needed = self.context.num_workers > 1 or self._reading.start or self._reading.of_known_size
            if self.steps is not None or not needed:
                return None
            log.info("`%s`: counting the elements once, so that all workers make the same number of steps; "
                     "pass steps_per_epoch, or use tf.data.experimental.assert_cardinality(), to avoid it",
                     self.name)  # fmt: skip
            # Count a separate dataset, because its shuffle counts its readings separately.
            with tf_internals.undisturbed_random_numbers():  # one worker may not count
                size = stream.count(in_common_order(self._call(), *self.context.place))
        return not_empty(size, f"`{self.name}`")


def _refuse_examples(dataset: tf.data.Dataset, name: str) -> None:
    """Refuse single examples where batches are expected, as far as their shapes tell them apart.

    In a batch, some inputs have as many rows as the targets. Other inputs, such as the edges of a graph, may
    have another number: one worker trains with them.
    """
    spec = dataset.element_spec
    parts = [_first_sides(part) for part in (spec if isinstance(spec, tuple) else (spec,))]
    first = set().union(*parts)
    if () in first or (None not in first and not set.intersection(*parts)):
        argument = "validation_batch_size" if name == "validation_data" else "batch_size"
        shapes = [part.shape for part in tf.nest.flatten(spec) if hasattr(part, "shape")]
        raise ArgumentError(
            f"Without `{argument}`, the dataset of the function `{name}` must have batches.",
            received=f"elements of the shapes {', '.join(map(str, shapes))}",
            fix=f"Pass {argument}=32, for example, or call dataset.batch(32) in the function.",
        )


def _first_sides(specs: object) -> set[object]:
    """Return the first dimensions of nested types; None for those that are not known, () for numbers."""
    shapes = [spec.shape for spec in tf.nest.flatten(specs) if hasattr(spec, "shape")]
    return {None if shape.rank is None else shape[0] if shape.rank else () for shape in shapes}


def _not_ahead(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Forbid TensorFlow to prefetch over the end of a pass. Each pass prefetches by itself.

    The user's shuffle counts every started pass, even if the iterator stops soon.
    """
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return batches.with_options(options)


def _takes_context(function: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD,
                  inspect.Parameter.VAR_POSITIONAL)  # fmt: skip
    return any(p.kind in positional for p in parameters)

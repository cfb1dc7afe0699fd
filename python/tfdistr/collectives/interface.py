"""The interface of the collectives, by which workers exchange tensors."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfdistr.collectives.sparse_rows import Layout, is_small, sum_equal_rows, table_shape, whole_table
from tfdistr.collectives.sum_tree import SumTree
from tfdistr.rendezvous.lifelines import Lifelines

#: Bytes of gradients in one collective. One pack for all gradients, TensorFlow's default, took
#: twice as long for 100 MB between two processes on one machine; 2, 8, 16 and 32 MiB were no better than 4.
BYTES_PER_PACK = 4 * 1024 * 1024

#: Seconds after which a worker that waits for another worker logs it.
WAITING_NOTE = 30.0

log = logging.getLogger("tfdistr")

#: Seconds within which the message about the first failure follows the errors that the failure causes.
HEARING = 2.0


class Traffic(NamedTuple):
    """The numbers of collectives of tensors and of their bytes that a worker has sent."""

    collectives: int
    bytes: int


class Collectives(ABC):
    """The collective operations of one worker. All workers call the same operations in the same order."""

    def __init__(self, num_workers: int, index: int, bytes_per_pack: int) -> None:
        self.num_workers = num_workers
        self.index = index
        self._bytes_per_pack = bytes_per_pack
        self._lifelines: Lifelines | None = None

    #: Whether ``tf.math.unsorted_segment_sum`` adds in a fixed order here.
    _adds_in_order = True

    def all_reduce(
        self,
        op: tf.distribute.ReduceOp,
        tensors: Sequence[object],
        dtype: tf.DType | None = None,
        *,
        add_rows: bool = False,
    ) -> list[Any]:
        """Reduce each tensor (or ``tf.IndexedSlices``) over the workers; every worker gets the results.

        Args:
            tensors: The tensors, with the same shapes and types on all workers. The numbers of rows of
                ``tf.IndexedSlices`` may differ.
            dtype: The type in which floating-point numbers are sent; by default their own type.
            add_rows: Whether the caller needs only the sum of the rows with the same index. Then each index
                occurs once in a result, or the result is a tensor. Otherwise a result has the rows of all
                workers.
        """
        add_rows = add_rows and self._adds_in_order
        tensors = list(map(_with_tensors, tensors))
        if add_rows:
            tensors = [_summed_rows(tensor) for tensor in tensors]
        results: dict[int, Any] = {}
        dense = [(i, t) for i, t in enumerate(tensors) if not isinstance(t, tf.IndexedSlices)]
        sparse = [(i, t) for i, t in enumerate(tensors) if isinstance(t, tf.IndexedSlices)]
        if sparse:  # together with the dense gradients
            own = self._own_counts([rows for _, rows in sparse], [t for _, t in dense], dtype)
            dense.append((len(tensors), own))
        # The gradients of the last layers are ready first.
        for pack in _packs(dense[::-1], self._bytes_per_pack):
            totals = self._sum_pack([tensor for _, tensor in pack], dtype)
            for (i, tensor), total in zip(pack, totals, strict=True):
                results[i] = tf.ensure_shape(tf.reshape(total, tf.shape(tensor)), tensor.shape)
        if sparse:
            counts = tf.cast(results.pop(len(tensors)), tf.int32)
            rows = self._all_rows([rows for _, rows in sparse], counts, dtype, add_rows)
            results.update((i, total) for (i, _), total in zip(sparse, rows, strict=True))
        ordered = [results[i] for i in range(len(tensors))]
        return [self._mean(t) for t in ordered] if op == tf.distribute.ReduceOp.MEAN else ordered

    def _own_counts(
        self, slices: Sequence[tf.IndexedSlices], dense: Sequence[tf.Tensor], dtype: tf.DType | None
    ) -> tf.Tensor:
        """Return this worker's numbers of rows, one for each table, among zeros for the other workers.

        They have the type of the last dense tensor, with which they are sent, if it holds them exactly.
        """
        kind = dense[-1].dtype if dense and dtype in (None, dense[-1].dtype) else tf.int32
        kind = kind if kind in (tf.float32, tf.float64, tf.int32, tf.int64) else tf.int32
        counts = tf.cast(tf.stack([tf.size(rows.indices) for rows in slices]), kind)
        return tf.one_hot(self.index, self.num_workers, dtype=kind)[:, tf.newaxis] * counts

    def _sum_pack(self, tensors: Sequence[tf.Tensor], dtype: tf.DType | None) -> Sequence[tf.Tensor]:
        """Sum tensors of one type over the workers. The results may have one dimension only."""
        flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
        total = tf.cast(self.sum(_sent(flat, dtype)), flat.dtype)
        parts: Sequence[tf.Tensor] = tf.split(total, list(map(tf.size, tensors)))
        return parts

    def gather_rows(self, slices: Sequence[tf.IndexedSlices]) -> list[tf.IndexedSlices]:
        """Concatenate the workers' rows of each table, in the order of the workers."""
        if not slices:
            return []
        own = self._own_counts(slices, [], None)
        counts = tf.reshape(self.sum(tf.reshape(own, [-1])), tf.shape(own))
        return self._all_rows(slices, counts, None, add=False)

    def _all_rows(
        self, slices: Sequence[tf.IndexedSlices], counts: tf.Tensor, dtype: tf.DType | None, add: bool
    ) -> list[tf.IndexedSlices]:
        """Exchange the rows of all tables, whose numbers are ``counts[worker][table]``, in one collective."""
        sent = [tf.IndexedSlices(_sent(s.values, dtype), s.indices, s.dense_shape) for s in slices]
        layouts = [layout for each in sent if (layout := Layout.of(each)) is not None]
        if len(layouts) < len(sent):  # an unusual type or shape
            return list(map(self._rows_by_two_gathers, sent, slices))
        whole: list[tf.Tensor | None] = [None] * len(sent)
        if add:
            # More rows than the table has: the table takes fewer bytes. All workers know all counts.
            too_many = tf.reduce_sum(counts, 0) >= tf.stack([_number_of_rows(each) for each in slices])
            counts = tf.where(too_many, 0, counts)
            whole = tf.unstack(too_many)
        own = tf.unstack(counts[self.index])
        matrices = [layout.to_words(each) for layout, each in zip(layouts, sent, strict=True)]
        flat = tf.concat([tf.reshape(m[:n], [-1]) for m, n in zip(matrices, own, strict=True)], 0)
        sizes = counts * tf.constant([layout.words for layout in layouts])
        gathered = self._gather_flat(flat, tf.reduce_sum(sizes, 1))
        pieces = tf.split(gathered, tf.reshape(sizes, [-1]), num=self.num_workers * len(sent))
        results = []
        for k, layout in enumerate(layouts):
            words = tf.concat([tf.reshape(p, [-1, layout.words]) for p in pieces[k :: len(sent)]], 0)
            results.append(self._rows_of_table(slices[k], layout, words, whole[k], dtype))
        return results

    def _rows_of_table(
        self,
        own: tf.IndexedSlices,
        layout: Layout,
        words: tf.Tensor,
        whole: tf.Tensor | None,
        dtype: tf.DType | None,
    ) -> tf.IndexedSlices:
        """Return the rows of all workers from their words, or, if ``whole``, all rows of the table."""

        def gathered() -> tf.IndexedSlices:
            sent = layout.from_words(words, own.dense_shape)
            return tf.IndexedSlices(tf.cast(sent.values, own.dtype), sent.indices, own.dense_shape)

        if whole is None:
            return gathered()

        def of_rows() -> tuple[tf.Tensor, tf.Tensor]:
            added = sum_equal_rows(gathered())
            return added.values, added.indices

        def of_table() -> tuple[tf.Tensor, tf.Tensor]:
            rows = _number_of_rows(own)
            [total] = self._sum_pack([tf.reshape(whole_table(own, rows), [-1])], dtype)
            return tf.reshape(total, [-1, *layout.row]), tf.range(tf.cast(rows, own.indices.dtype))

        values, indices = tf.cond(whole, of_table, of_rows)
        values = tf.ensure_shape(values, [None, *layout.row])
        return tf.IndexedSlices(values, tf.ensure_shape(indices, [None]), own.dense_shape)

    def _rows_by_two_gathers(self, sent: tf.IndexedSlices, own: tf.IndexedSlices) -> tf.IndexedSlices:
        values = tf.cast(self.all_gather(sent.values, 0), own.dtype)
        return tf.IndexedSlices(values, self.all_gather(own.indices, 0), own.dense_shape)

    def sum_in_order(self, tree: SumTree, values: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor]:
        """Sum tensors over the virtual workers, from the sums at this worker's nodes of the tree."""
        results: dict[int, tf.Tensor] = {}
        for pack in _packs(list(reversed(list(enumerate(values[0])))), self._bytes_per_pack):
            numbers = [i for i, _ in pack]
            flat = [tf.concat([tf.reshape(node[i], [-1]) for i in numbers], 0) for node in values]
            total = self._sum_nodes(tree, tf.stack(flat))
            sizes = [tf.size(tensor) for _, tensor in pack]
            for (i, tensor), part in zip(pack, tf.split(total, sizes), strict=True):
                results[i] = tf.ensure_shape(tf.reshape(part, tf.shape(tensor)), tensor.shape)
        return [results[i] for i in range(len(values[0]))]

    def from_chief(self, tensors: Sequence[tf.Tensor]) -> list[Any]:
        own = tensors if self.index == 0 else list(map(tf.zeros_like, tensors))
        return self.all_reduce(tf.distribute.ReduceOp.SUM, own)

    def broadcast(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return worker 0's ``tensor`` on every worker."""
        return self.from_chief([tensor])[0]

    @property
    @abstractmethod
    def traffic(self) -> Traffic:
        """The amount of data that this worker has sent until now."""

    @property
    def seconds(self) -> float | None:
        """Seconds that this worker has spent in collectives of tensors, or None if that is not known."""
        return None

    @property
    def share_a_host(self) -> bool | None:
        """True if all workers run on one host, False if not, None if that is not known."""
        return None

    @abstractmethod
    def sum(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return the sum of the workers' tensors, which have one dimension."""

    @abstractmethod
    def _sum_nodes(self, tree: SumTree, values: tf.Tensor) -> tf.Tensor:
        """Sum the rows of all workers in the order of the tree; this worker's nodes are the rows."""

    @abstractmethod
    def all_gather(self, tensor: tf.Tensor, axis: int) -> tf.Tensor:
        """Concatenate the workers' tensors along ``axis``, in the order of the workers."""

    @abstractmethod
    def _gather_flat(self, tensor: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Concatenate the workers' tensors, which have one dimension and these lengths."""

    def begin_waits(self) -> None:  # noqa: B027 - some cannot know the waits
        """Count the waits for peers from now on; see ``waited()``."""

    def waited(self) -> float | None:
        """Return the part of ``seconds`` until the last worker had come, since ``begin_waits()``.

        All workers call it: they compare their times. None if it is not known.
        """
        return None

    @abstractmethod
    def exchange(self, text: str) -> list[str]:
        """Return the ``text`` of each worker, in the order of the workers. Not for use in a graph."""

    @abstractmethod
    def text_of_chief(self, text: str) -> str:
        """Return the ``text`` of worker 0, like ``exchange``. Worker 0 waits for the others over MPI only."""

    @abstractmethod
    def barrier(self, name: str, timeout: float) -> None:
        """Wait at most ``timeout`` seconds until every worker is at the barrier ``name`` (used once)."""

    @abstractmethod
    def report_failure(self, message: str) -> None:
        """Let the current or next wait of the peers fail with ``message``."""

    def pass_on(self, message: str) -> None:
        """Forward a failure that a peer has reported to the peers that may hear of it late."""
        if self._lifelines is not None:  # otherwise a message over MPI reaches every rank
            self._lifelines.tell(message)

    def heard_failure(self) -> str | None:
        """Return the message about the first failure, if it arrives apart from the errors."""
        return self._lifelines.heard(HEARING) if self._lifelines is not None else None

    @abstractmethod
    def behind(self) -> list[int]:
        """Return the workers that are behind the others, which wait for them. All waiting workers call this.

        An implementation that knows no more returns only this worker, or no worker.
        """

    def moved_on(self) -> None:  # noqa: B027 - some tell nobody that they wait
        """Record that this worker no longer waits, after ``behind()``."""

    @abstractmethod
    def abandon(self) -> None:
        """Leave the peers after a reported failure, because this process will exit."""

    @abstractmethod
    def close(self) -> bool:
        """Free the shared resources of the workers, when all have finished; return whether all do so."""

    def _mean(self, value: Any) -> Any:
        if isinstance(value, tf.IndexedSlices):
            return tf.IndexedSlices(value.values / self.num_workers, value.indices, value.dense_shape)
        return value / self.num_workers


@tf.function(autograph=False, experimental_attributes={"_noinline": True})  # type: ignore[untyped-decorator]
def add_pairs(left: Sequence[tf.Tensor], right: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Add tensors pair by pair.

    A function of its own: TensorFlow would rewrite a tree of additions into one addition with another order.
    """
    return [a + b for a, b in zip(left, right, strict=True)]


def _with_tensors(value: object) -> tf.Tensor | tf.IndexedSlices:
    if not isinstance(value, tf.IndexedSlices):
        return value
    shape = None if value.dense_shape is None else tf.convert_to_tensor(value.dense_shape)
    return tf.IndexedSlices(tf.convert_to_tensor(value.values), tf.convert_to_tensor(value.indices), shape)


def _summed_rows(tensor: object) -> tf.Tensor | tf.IndexedSlices:
    """Add the rows with the same index; return a small table whole."""
    if not isinstance(tensor, tf.IndexedSlices):
        return tensor
    if not is_small(tensor):
        return sum_equal_rows(tensor)
    return tf.ensure_shape(whole_table(tensor, _number_of_rows(tensor)), table_shape(tensor))


def _number_of_rows(slices: tf.IndexedSlices) -> int | tf.Tensor:
    shape = table_shape(slices)
    return tf.cast(slices.dense_shape[0], tf.int32) if shape is None else shape[0]


def _sent(tensor: tf.Tensor, dtype: tf.DType | None) -> tf.Tensor:
    return tf.cast(tensor, dtype) if dtype and tensor.dtype.is_floating else tensor


def _packs(
    tensors: Sequence[tuple[int, tf.Tensor]], bytes_per_pack: int
) -> list[list[tuple[int, tf.Tensor]]]:
    """Group consecutive tensors of one type into about ``bytes_per_pack``; unknown sizes count as 0."""
    packs: list[list[tuple[int, Any]]] = []
    size = 0
    for item in tensors:
        tensor = item[1]
        own = (tensor.shape.num_elements() or 0) * tensor.dtype.size
        if not packs or size + own > bytes_per_pack or packs[-1][0][1].dtype != tensor.dtype:
            packs.append([])
            size = 0
        packs[-1].append(item)
        size += own
    return packs


def move_axis(tensor: tf.Tensor, axis: int) -> tf.Tensor:
    """Swap ``axis`` and the first axis of ``tensor``."""
    order = list(range(tensor.shape.rank))
    order[0], order[axis] = order[axis], order[0]
    return tensor if axis == 0 else tf.transpose(tensor, order)

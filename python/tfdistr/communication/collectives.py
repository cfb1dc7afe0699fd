"""What carries tensors between workers: one small interface, so that engines can take each other's place."""

from __future__ import annotations

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfdistr import _private
from tfdistr.cluster.lifelines import Lifelines
from tfdistr.cluster.peer_failure import report_end

#: Bytes of gradients that go out as one collective. One pack for everything, TensorFlow's default, took
#: twice as long for 100 MB between two processes on one machine; 2, 8, 16 and 32 MiB were no better than 4.
BYTES_PER_PACK = 4 * 1024 * 1024

#: Seconds after which a worker that waits for another says so.
WAITING_NOTE = 30.0

log = logging.getLogger("tfdistr")

# Where a worker that failed leaves its message.
_FAILED = "tfdistr/failed"
# Where a worker that makes no step leaves the number of collectives that it has begun.
_PLACE = "tfdistr/place"
# Seconds in which the peers, which wait as long, should have left theirs.
_POSITION_TIMEOUT = 5.0
# TensorFlow counts the keys of its own groups of devices up from 1.
_GROUP_KEY = 1 << 20


class Traffic(NamedTuple):
    """What a worker has sent.

    Attributes:
        collectives: Number of collectives of tensors.
        bytes: Bytes of the tensors that were given to them.
    """

    collectives: int
    bytes: int


class Collectives(ABC):
    """The collective operations of one worker. All workers call the same ones in the same order.

    Args:
        num_workers: Number of workers.
        index: Index of this worker.
        bytes_per_pack: Dense tensors are sent in packs of about this size.
    """

    def __init__(self, num_workers: int, index: int, bytes_per_pack: int) -> None:
        self.num_workers = num_workers
        self.index = index
        self._bytes_per_pack = bytes_per_pack

    def all_reduce(
        self, op: tf.distribute.ReduceOp, tensors: Sequence[Any], dtype: tf.DType | None = None
    ) -> list[Any]:
        """Reduce each tensor (or ``tf.IndexedSlices``) over the workers; every worker gets the results.

        Args:
            op: SUM or MEAN.
            tensors: The tensors, the same ones on all workers.
            dtype: What floating-point numbers are sent as; by default as what they are.
        """
        results: dict[int, Any] = {}
        dense = [i for i, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
        # Gradients of the last layers are there first.
        for pack in _packs([(i, tensors[i]) for i in reversed(dense)], self._bytes_per_pack):
            totals = self._sum_pack([tensor for _, tensor in pack], dtype)
            for (i, tensor), total in zip(pack, totals, strict=True):
                results[i] = tf.ensure_shape(tf.reshape(total, tf.shape(tensor)), tensor.shape)
        for i, tensor in enumerate(tensors):
            if isinstance(tensor, tf.IndexedSlices):
                values = tf.cast(self.all_gather(_sent(tensor.values, dtype), 0), tensor.dtype)
                results[i] = tf.IndexedSlices(values, self.all_gather(tensor.indices, 0), tensor.dense_shape)
        ordered = [results[i] for i in range(len(tensors))]
        return [self._mean(t) for t in ordered] if op == tf.distribute.ReduceOp.MEAN else ordered

    def _sum_pack(self, tensors: Sequence[tf.Tensor], dtype: tf.DType | None) -> Sequence[tf.Tensor]:
        """The sums of tensors of one type, as one collective; they may have one dimension."""
        flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
        total = tf.cast(self.sum(_sent(flat, dtype)), flat.dtype)
        parts: Sequence[tf.Tensor] = tf.split(total, list(map(tf.size, tensors)))
        return parts

    def from_chief(self, tensors: Sequence[tf.Tensor]) -> list[Any]:
        """Worker 0's ``tensors``, on every worker."""
        own = tensors if self.index == 0 else list(map(tf.zeros_like, tensors))
        return self.all_reduce(tf.distribute.ReduceOp.SUM, own)

    def broadcast(self, tensor: tf.Tensor) -> tf.Tensor:
        """Worker 0's ``tensor``."""
        return self.from_chief([tensor])[0]

    @property
    @abstractmethod
    def traffic(self) -> Traffic:
        """What this worker has sent until now."""

    @abstractmethod
    def sum(self, tensor: tf.Tensor) -> tf.Tensor:
        """The sum of the workers' tensors, which have one dimension."""

    @abstractmethod
    def all_gather(self, tensor: tf.Tensor, axis: int) -> tf.Tensor:
        """Concatenate the workers' tensors along ``axis``, in the order of the workers."""

    @abstractmethod
    def exchange(self, text: str) -> list[str]:
        """The ``text`` that each worker passes, in the order of the workers. Not for use in a graph.

        It waits for all, and logs whom it waits for.

        Raises:
            tf.errors.AbortedError: A worker has reported that it failed.
        """

    @abstractmethod
    def text_of_chief(self, text: str) -> str:
        """The ``text`` that worker 0 passes, who need not wait for the others; else as ``exchange``."""

    @abstractmethod
    def barrier(self, name: str, timeout: float) -> None:
        """Wait at most ``timeout`` seconds until every worker is at the barrier ``name`` (used once)."""

    @abstractmethod
    def report_failure(self, message: str) -> None:
        """Make what the peers wait for, now or next, fail with ``message``."""

    @abstractmethod
    def behind(self) -> list[int]:
        """The workers that have not come as far as others: all wait for them. To be called by all that wait.

        Only this worker itself, or none, where no more can be told.
        """

    @abstractmethod
    def moved_on(self) -> None:
        """Say that this worker does not wait any more, after ``behind()``."""

    @abstractmethod
    def abandon(self) -> None:
        """Let go of the peers, after a failure that was reported: this process is about to end."""

    @abstractmethod
    def close(self) -> None:
        """Free what the workers share, when all have come to their end."""

    def _mean(self, value: Any) -> Any:
        if isinstance(value, tf.IndexedSlices):
            return tf.IndexedSlices(value.values / self.num_workers, value.indices, value.dense_shape)
        return value / self.num_workers


class TensorFlowCollectives(Collectives):
    """TensorFlow's own collectives: the ring over gRPC on CPUs, NCCL where each worker has a GPU.

    The workers tell their collectives apart by keys. TensorFlow hands these out while a function is
    called, which fails inside a loop (as ``steps_per_execution`` makes one). Here a variable counts
    the collectives as they run, in the order of the program, so that the keys agree on all workers.

    Args:
        jobs: Number of tasks of each job that trains.
        index: Index of this worker.
        device: The device of this worker's replica.
        communication: "auto", "ring" or "nccl".
        bytes_per_pack: Dense tensors are sent in packs of about this size.
    """

    def __init__(
        self, jobs: dict[str, int], index: int, device: str, communication: str, bytes_per_pack: int
    ) -> None:
        super().__init__(sum(jobs.values()), index, bytes_per_pack)
        self._jobs = jobs
        self._device = device
        self._hint = communication
        self._exchanges = 0
        with tf.device("CPU:0"):
            self._traffic = tf.Variable([0, 0], dtype=tf.int64, trainable=False, name="traffic")
        # NCCL needs its operations launched in the same order everywhere; a common resource orders them.
        self._order = [tf.Variable(0.0, trainable=False).handle] if "GPU" in device else []
        self._lifelines: Lifelines | None = None

    def watch(self, lifelines: Lifelines, tasks: Mapping[str, str]) -> None:
        """Fail as soon as the process of a peer ends without a goodbye, whoever waits for it.

        Args:
            lifelines: What tells of it. From now on they are these collectives'.
            tasks: The addresses of the workers in order, by their names such as "worker 0".
        """
        self._lifelines = lifelines
        names = list(tasks)

        def on_loss(name: str) -> None:
            if name not in names:
                return
            message = report_end(names.index(name), tasks[name])
            _private.abort_collectives(message)
            if self.index == 0:  # for those who wait for a text or at a barrier
                self.report_failure(message)

        lifelines.watch(on_loss)

    @property
    def traffic(self) -> Traffic:
        return Traffic(*map(int, self._traffic.numpy()))

    def all_gather(self, tensor: tf.Tensor, axis: int) -> tf.Tensor:
        tensor = tf.convert_to_tensor(tensor)
        rows = tf.shape(tensor)[axis]
        counts = self._gather(rows[tf.newaxis])
        # The collective takes equal shapes only: what is short is filled up, and cut off after it.
        first = _move_axis(tensor, axis)
        filled = tf.pad(first, [[0, tf.reduce_max(counts) - rows], *([[0, 0]] * (tensor.shape.rank - 1))])
        parts = tf.split(self._gather(filled), self.num_workers)
        gathered = tf.concat([part[: counts[i]] for i, part in enumerate(parts)], 0)
        return _move_axis(gathered, axis)

    def exchange(self, text: str) -> list[str]:
        name = self._publish(text)
        peers = range(self.num_workers)
        return [text if peer == self.index else self._text_of(peer, name) for peer in peers]

    def text_of_chief(self, text: str) -> str:
        if self.index == 0:
            self._publish(text)
            return text
        self._exchanges += 1
        return self._text_of(0, f"tfdistr/exchange/{self._exchanges}")

    def barrier(self, name: str, timeout: float) -> None:
        _private.wait_at_barrier(name, timeout)

    def report_failure(self, message: str) -> None:
        # Who waits for a text is not disturbed by the report, so the message is one, too.
        with contextlib.suppress(tf.errors.OpError):
            _private.set_key(_FAILED, message)
        with contextlib.suppress(tf.errors.OpError):
            _private.report_error(message)
        self._say_goodbye()

    def behind(self) -> list[int]:
        self.moved_on()
        end = time.monotonic() + _POSITION_TIMEOUT
        places: dict[int, int] = {self.index: self.traffic.collectives + self._exchanges}
        _private.set_key(f"{_PLACE}/{self.index}", str(places[self.index]))
        for peer in set(range(self.num_workers)) - {self.index}:
            with contextlib.suppress(tf.errors.OpError):  # it does not answer
                places[peer] = int(_private.get_key(f"{_PLACE}/{peer}", max(0.05, end - time.monotonic())))
        first = min(places.values())
        return [worker for worker in range(self.num_workers) if places.get(worker, first) == first]

    def moved_on(self) -> None:
        with contextlib.suppress(tf.errors.OpError):
            _private.delete_key(f"{_PLACE}/{self.index}")

    def abandon(self) -> None:
        self._say_goodbye()

    def close(self) -> None:
        self._say_goodbye()  # the coordination service ends with the process

    def _say_goodbye(self) -> None:
        if self._lifelines is not None:
            self._lifelines.say_goodbye()

    def _publish(self, text: str) -> str:
        self._exchanges += 1
        name = f"tfdistr/exchange/{self._exchanges}"
        _private.set_key(f"{name}/{self.index}", text)
        return name

    def _text_of(self, worker: int, name: str) -> str:
        began = time.monotonic()
        to_be_said = WAITING_NOTE
        while True:
            with contextlib.suppress(tf.errors.DeadlineExceededError):
                return _private.get_key(f"{name}/{worker}", 0.5)
            failed = _private.failed_tasks(self._jobs)
            if failed:
                with contextlib.suppress(tf.errors.OpError):
                    failed = [_private.get_key(_FAILED, 0.5)]
                raise tf.errors.AbortedError(None, None, failed[0])
            waited = time.monotonic() - began
            if waited > to_be_said:
                log.warning("Waiting for worker %d since %.0f s: it is not there yet.", worker, waited)
                to_be_said *= 2

    def sum(self, tensor: tf.Tensor) -> tf.Tensor:
        return self._call(
            tf.raw_ops.CollectiveReduceV2, tensor, merge_op="Add", final_op="Id", max_subdivs_per_device=-1
        )

    def _gather(self, tensor: tf.Tensor) -> tf.Tensor:
        gathered = self._call(tf.raw_ops.CollectiveGatherV2, tensor)
        return tf.ensure_shape(gathered, [None, *tensor.shape[1:]])

    def _call(self, operation: Callable[..., tf.Tensor], tensor: tf.Tensor, **attributes: Any) -> tf.Tensor:
        # Not before the tensor is there, so that the count says how far this worker has come.
        with tf.control_dependencies([tensor]), tf.device("CPU:0"):
            sent = tf.size(tensor, tf.int64) * tensor.dtype.size
            key = tf.cast(self._traffic.assign_add(tf.stack([1, sent]), read_value=True)[0], tf.int32)

        def collective(tensor: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
            return operation(
                input=tensor,
                group_size=self.num_workers,
                group_key=_GROUP_KEY,
                instance_key=key,
                ordering_token=self._order,
                communication_hint=self._hint,
                **attributes,
            )

        return _outside_of_loops(collective, tensor, key)


def _outside_of_loops(collective: Callable[..., tf.Tensor], tensor: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """``collective(tensor, key)``, which TensorFlow tells from others by its key alone.

    In a loop it adds the iteration to the key, and workers would wait for ever for one that is in another:
    how many steps a call of the training loop makes is each worker's own choice.
    """
    if tf.executing_eagerly():
        return collective(tensor, key)
    function = tf.function(collective, autograph=False, experimental_attributes={"_noinline": True})
    traced = function.get_concrete_function(tensor, key)
    traced.add_to_graph(tf.compat.v1.get_default_graph())
    arguments = [tensor, key, *traced.captured_inputs]
    # The usual call is stateful: it would wait for the collective before it.
    [result] = tf.raw_ops.PartitionedCall(args=arguments, Tout=[tensor.dtype], f=traced)
    return tf.ensure_shape(result, traced.output_shapes)


def _sent(tensor: tf.Tensor, dtype: tf.DType | None) -> tf.Tensor:
    return tf.cast(tensor, dtype) if dtype and tensor.dtype.is_floating else tensor


def _packs(tensors: Sequence[tuple[int, Any]], bytes_per_pack: int) -> list[list[tuple[int, Any]]]:
    """Consecutive tensors of one type in groups of about ``bytes_per_pack``; unknown sizes count as 0."""
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


def _move_axis(tensor: tf.Tensor, axis: int) -> tf.Tensor:
    """``tensor`` with ``axis`` and the first axis in each other's place."""
    order = list(range(tensor.shape.rank))
    order[0], order[axis] = order[axis], order[0]
    return tensor if axis == 0 else tf.transpose(tensor, order)

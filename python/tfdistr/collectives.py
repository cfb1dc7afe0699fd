"""What carries tensors between workers: one small interface, so that engines can take each other's place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfdistr import _private

#: Bytes of gradients that go out as one collective. One pack for everything, TensorFlow's default, took
#: twice as long for 100 MB between two processes on one machine; 2, 8, 16 and 32 MiB were no better than 4.
BYTES_PER_PACK = 4 * 1024 * 1024

# TensorFlow counts the keys of its own groups of devices up from 1.
_GROUP_KEY = 1 << 20


class Collectives(ABC):
    """The collective operations of one worker. All workers call the same ones in the same order."""

    @abstractmethod
    def all_reduce(self, op: tf.distribute.ReduceOp, tensors: Sequence[Any]) -> list[Any]:
        """Reduce each tensor (or ``tf.IndexedSlices``) over the workers; every worker gets the results."""

    @abstractmethod
    def all_gather(self, tensor: tf.Tensor, axis: int) -> tf.Tensor:
        """Concatenate the workers' tensors along ``axis``, in the order of the workers."""

    @abstractmethod
    def barrier(self, name: str, timeout: float) -> None:
        """Wait at most ``timeout`` seconds until every worker is at the barrier ``name`` (used once)."""


class TensorFlowCollectives(Collectives):
    """TensorFlow's own collectives: the ring over gRPC on CPUs, NCCL where each worker has a GPU.

    The workers tell their collectives apart by keys. TensorFlow hands these out while a function is
    called, which fails inside a loop (as ``steps_per_execution`` makes one). Here a variable counts
    the collectives as they run, in the order of the program, so that the keys agree on all workers.

    Args:
        num_workers: Number of workers.
        device: The device of this worker's replica.
        communication: "auto", "ring" or "nccl".
        bytes_per_pack: Dense tensors are sent in packs of about this size.
    """

    def __init__(self, num_workers: int, device: str, communication: str, bytes_per_pack: int) -> None:
        self._workers = num_workers
        self._device = device
        self._hint = communication
        self._bytes_per_pack = bytes_per_pack
        with tf.device("CPU:0"):
            self._calls = tf.Variable(0, dtype=tf.int32, trainable=False, name="collective_calls")
        # NCCL needs its operations launched in the same order everywhere; a common resource orders them.
        self._order = [tf.Variable(0.0, trainable=False).handle] if "GPU" in device else []

    def all_reduce(self, op: tf.distribute.ReduceOp, tensors: Sequence[Any]) -> list[Any]:
        results: dict[int, Any] = {}
        dense = [i for i, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
        # Gradients of the last layers are there first.
        for pack in _packs([(i, tensors[i]) for i in reversed(dense)], self._bytes_per_pack):
            flat = tf.concat([tf.reshape(tensor, [-1]) for _, tensor in pack], 0)
            parts = tf.split(self._sum(flat), [tf.size(tensor) for _, tensor in pack])
            for (i, tensor), part in zip(pack, parts, strict=True):
                results[i] = tf.ensure_shape(tf.reshape(part, tf.shape(tensor)), tensor.shape)
        for i, tensor in enumerate(tensors):
            if isinstance(tensor, tf.IndexedSlices):
                values, indices = self.all_gather(tensor.values, 0), self.all_gather(tensor.indices, 0)
                results[i] = tf.IndexedSlices(values, indices, tensor.dense_shape)
        ordered = [results[i] for i in range(len(tensors))]
        return [self._mean(t) for t in ordered] if op == tf.distribute.ReduceOp.MEAN else ordered

    def all_gather(self, tensor: tf.Tensor, axis: int) -> tf.Tensor:
        tensor = tf.convert_to_tensor(tensor)
        rows = tf.shape(tensor)[axis]
        counts = self._gather(rows[tf.newaxis])
        # The collective takes equal shapes only: what is short is filled up, and cut off after it.
        first = _move_axis(tensor, axis)
        filled = tf.pad(first, [[0, tf.reduce_max(counts) - rows], *([[0, 0]] * (tensor.shape.rank - 1))])
        parts = tf.split(self._gather(filled), self._workers)
        gathered = tf.concat([part[: counts[i]] for i, part in enumerate(parts)], 0)
        return _move_axis(gathered, axis)

    def barrier(self, name: str, timeout: float) -> None:
        _private.wait_at_barrier(name, timeout)

    def _sum(self, tensor: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.CollectiveReduceV2(
            input=tensor, merge_op="Add", final_op="Id", max_subdivs_per_device=-1, **self._call()
        )

    def _gather(self, tensor: tf.Tensor) -> tf.Tensor:
        gathered = tf.raw_ops.CollectiveGatherV2(input=tensor, **self._call())
        return tf.ensure_shape(gathered, [None, *tensor.shape[1:]])

    def _mean(self, value: Any) -> Any:
        if isinstance(value, tf.IndexedSlices):
            return tf.IndexedSlices(value.values / self._workers, value.indices, value.dense_shape)
        return value / self._workers

    def _call(self) -> dict[str, Any]:
        with tf.device("CPU:0"):
            key = self._calls.assign_add(1, read_value=True)
        return {
            "group_size": self._workers,
            "group_key": _GROUP_KEY,
            "instance_key": tf.convert_to_tensor(key),
            "ordering_token": self._order,
            "communication_hint": self._hint,
        }


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

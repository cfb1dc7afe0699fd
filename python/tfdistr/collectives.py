"""What carries tensors between workers: one small interface, so that engines can take each other's place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfdistr import _private

#: Bytes of gradients that go out as one collective. One pack for everything, TensorFlow's default,
#: took three times as long for 100 MB between two processes on one machine.
BYTES_PER_PACK = 8 * 1024 * 1024


class Collectives(ABC):
    """The collective operations of one worker. Every worker of the job calls the same ones in the same order."""

    #: Name of the engine, as in ``communication = "ring"``.
    name: str

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

    Args:
        cross_device_ops: TensorFlow's implementation.
        device: The device of this worker's replica.
        options: The ``tf.distribute.experimental.CommunicationOptions`` to pass on.
    """

    def __init__(self, cross_device_ops: Any, device: str, options: Any) -> None:
        self.name = str(options.implementation.name).lower()
        self._ops = cross_device_ops
        self._device = device
        self._options = options

    def all_reduce(self, op: tf.distribute.ReduceOp, tensors: Sequence[Any]) -> list[Any]:
        return list(self._ops._all_reduce(op, list(tensors), 0, self._options))

    def all_gather(self, tensor: tf.Tensor, axis: int) -> tf.Tensor:
        gathered = self._ops._gather(tensor, destinations=self._device, axis=axis, options=self._options)
        return gathered.values[0] if isinstance(gathered, tf.distribute.DistributedValues) else gathered

    def barrier(self, name: str, timeout: float) -> None:
        _private.wait_at_barrier(name, timeout)

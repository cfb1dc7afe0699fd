"""What the strategy does with replicas, values and datasets where each worker has one replica."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfdistr import _private
from tfdistr.collectives import Collectives, TensorFlowCollectives
from tfdistr.data.shard import distribute_batches, is_share, leave_to_tensorflow


class OneReplica(_private.MultiWorkerExtended):
    """Runs the replica on the calling thread, and everything between workers through ``Collectives``.

    A worker with several local replicas is left to TensorFlow, as is one without peers.
    """

    def __init__(self, strategy: tf.distribute.Strategy, resolver: Any, options: Any) -> None:
        super().__init__(strategy, cluster_resolver=resolver, communication_options=options)
        #: What carries tensors to the peers; None if TensorFlow does as it always does.
        self.collectives: Collectives | None = None
        if self.one_replica and self.num_workers > 1:
            self.collectives = TensorFlowCollectives(
                self.num_workers,
                self.worker_devices[0],
                options.implementation.name.lower(),
                options.bytes_per_pack,
            )
        #: How many all-reduces replicas have asked for: a model that communicates is told by it.
        self.replica_reductions = 0
        #: 0 in a step for which this worker has no examples, so that it adds nothing to a sum; else 1.
        self.present: tf.Tensor | None = None

    @property
    def one_replica(self) -> bool:
        """Whether this worker has one device."""
        return len(self.worker_devices) == 1

    def on_replicas(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run a function on the calling thread, as the replica."""
        if not self.one_replica:
            return super().on_replicas(fn, args, kwargs)
        args, kwargs = tf.nest.map_structure(self.local, (args or (), kwargs or {}))
        # Without the device, gradients would be reduced one by one.
        with self.replica_context(), tf.device(self.worker_devices[0]):
            return fn(*args, **kwargs)

    def on_reduce(self, op: Any, value: Any, destinations: Any, options: Any) -> Any:
        """Reduce a value over the workers."""
        if self.collectives is None:
            return super().on_reduce(op, value, destinations, options)
        return self.collectives.all_reduce(op, [self._own(value)])[0]

    def on_batch_reduce(self, op: Any, pairs: Any, options: Any) -> Any:
        """Reduce what the replica gave over the workers."""
        if not self.one_replica:
            return super().on_batch_reduce(op, pairs, options)
        values = [self._own(value) for value, _ in pairs]
        return self._reduce_of_replica(self.collectives, op, values) if self.collectives else values

    def on_replica_reduce(self, op: Any, value: Any, options: Any) -> Any:
        """Reduce a nested value of the replica over the workers."""
        if self.collectives is None:
            return super().on_replica_reduce(op, value, options)
        reduced = self._reduce_of_replica(self.collectives, op, tf.nest.flatten(value))
        return tf.nest.pack_sequence_as(value, reduced)

    def on_gather(self, value: Any, destinations: Any, axis: int, options: Any) -> Any:
        """Concatenate the workers' values."""
        if self.collectives is None:
            return super().on_gather(value, destinations, axis, options)
        return self.collectives.all_gather(self._own(value), axis)

    def on_dataset(self, dataset: tf.data.Dataset, options: Any) -> Any:
        """This worker's rows of every global batch, unless the user chose another policy."""
        if self.one_replica and is_share(dataset):
            return dataset
        if not self.one_replica or leave_to_tensorflow(dataset, self.num_workers):
            return super().on_dataset(dataset, options)
        return distribute_batches(dataset, self.num_workers, self.worker_index)

    def local(self, value: Any) -> Any:
        """This worker's part of a distributed value; variables stay as they are."""
        if isinstance(value, tf.distribute.DistributedValues) and not isinstance(value, tf.Variable):
            return self.strategy.experimental_local_results(value)[0]
        return value

    def local_variable(self, variable: Any) -> Any:
        """This worker's own part of a variable: reading the whole may be a collective."""
        return variable.values[0] if isinstance(variable, tf.distribute.DistributedValues) else variable

    def _own(self, value: Any) -> Any:
        value = self.local_variable(value)
        return tf.convert_to_tensor(value) if isinstance(value, tf.Variable) else value

    def _reduce_of_replica(self, collectives: Collectives, op: Any, values: list[Any]) -> list[Any]:
        self.replica_reductions += 1
        if self.present is not None:
            values = [scale(v, self.present) if v.dtype.is_floating else v for v in values]
        return collectives.all_reduce(op, values)


def scale(value: Any, factor: tf.Tensor) -> Any:
    """``value * factor``, and 0 where the factor is 0 even if the value is no number."""
    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(scale(value.values, factor), value.indices, value.dense_shape)
    return tf.math.multiply_no_nan(value, tf.cast(factor, value.dtype))

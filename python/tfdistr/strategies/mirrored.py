"""``OneDeviceStrategy`` and ``MirroredStrategy``: the devices of one process.

Under the stock ``MirroredStrategy``, Keras 3 averages the replicas' losses without regard to their numbers of
rows, and clips each replica's gradients. Here a step of Keras's ``fit`` gives the result of one device.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError, DataShardError
from tfdistr.strategies.build import WithoutFirstLook, has_known_shapes, let_keras_build
from tfdistr.strategies.device_batches import DeviceBatches
from tfdistr.strategies.end_of_data import warn_at_early_end
from tfdistr.strategies.exact.exchange import NoPeers, ReplicaStep, scale, sums_from_tapes
from tfdistr.strategies.exact.loss_weighting import (
    MeanOverExamples,
    at_least_one,
    count_examples,
    without_stand_in,
)
from tfdistr.strategies.exact.step_logs import flat_logs
from tfdistr.strategies.mean_loss import warn_of_means
from tfdistr.strategies.worker_strategy import OneProcessStrategy
from tfdistr.strategies.xla import compile_between_exchanges, marked
from tfdistr.utils.describe import describe

log = logging.getLogger("tfdistr")

_ONE_PROCESS_EACH = 'Use one process for each device: strategy="multi_worker_mirrored" on a local_cluster()'


class OneDeviceStrategy(OneProcessStrategy, tf.distribute.OneDeviceStrategy):  # type: ignore[misc]
    """Training on one device of this process.

    Drop-in for ``tf.distribute.OneDeviceStrategy``.

    Args:
        device: The name of the device, such as "cpu:0" or "/gpu:1".

    Raises:
        ArgumentError: There is no such device.

    Source: https://www.tensorflow.org/api_docs/python/tf/distribute/OneDeviceStrategy

    Example:
        >>> strategy = tfdistr.OneDeviceStrategy("cpu:0")
        >>> with strategy.scope():
        ...     print(keras.Variable(1.0).value.device)
        /job:localhost/replica:0/task:0/device:CPU:0
    """

    def __init__(self, device: str = "cpu:0") -> None:
        (name,) = local_devices("device", [device])
        super().__init__(name)


class MirroredStrategy(OneProcessStrategy, tf.distribute.MirroredStrategy):  # type: ignore[misc]
    """Synchronous training on several devices of this process, with the result of one device.

    Drop-in for ``tf.distribute.MirroredStrategy``. In the steps of Keras's ``fit`` and ``evaluate`` the
    weight of a replica is its number of rows, and gradients are clipped after the sum. In a custom step,
    scale the loss as TensorFlow teaches (``average_loss``).

    Args:
        devices: Names of devices, such as ``["gpu:0", "gpu:1"]``; by default all GPUs that this process
            sees, or the CPU if it sees none.
        cross_device_ops: A ``tf.distribute.CrossDeviceOps`` that sums over the devices; by default
            ``tf.distribute.NcclAllReduce()`` on GPUs, and ``tf.distribute.ReductionToOneDevice()`` elsewhere.

    Raises:
        ArgumentError: A device does not exist or is named twice, or ``cross_device_ops`` is something else.

    Source: https://www.tensorflow.org/guide/distributed_training#mirroredstrategy

    Example:
        >>> strategy = tfdistr.MirroredStrategy(["cpu:0"])
        >>> strategy.num_replicas_in_sync
        1
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        cross_device_ops: tf.distribute.CrossDeviceOps | None = None,
    ) -> None:
        names = local_devices("devices", devices) if devices is not None else None
        _check_cross_device_ops(cross_device_ops)
        with _without_cluster():
            # Skips the stock constructor, which would create the stock object in place of _Replicas.
            super(tf.distribute.MirroredStrategy, self).__init__(_Replicas(self, names, cross_device_ops))

    def reduce(self, reduce_op: object, value: object, axis: int | None = None) -> Any:
        """Reduce ``value`` over the replicas; see ``tf.distribute.Strategy.reduce``.

        A first batch, of which Keras needs only the shapes, is that of the first replica.
        """
        if tf.nest.is_nested(value) and tf_internals.keras_builds_model():
            return tf.nest.map_structure(lambda part: self.experimental_local_results(part)[0], value)
        return super().reduce(reduce_op, value, axis)

    def experimental_distribute_dataset(
        self, dataset: tf.data.Dataset, options: tf.distribute.InputOptions | None = None
    ) -> tf.distribute.DistributedDataset:
        """Split each batch of a dataset over the replicas; see ``tf.distribute.Strategy``."""
        call = tf_internals.keras_call()
        if self.num_replicas_in_sync > 1:
            check_dataset(dataset)
            if call is not None:
                check_model(call.model)
        if call is None:
            return self._batches(super().experimental_distribute_dataset, dataset, options)
        let_keras_build(call.model)
        warn_at_early_end(call, is_chief=True)
        distributed = super().experimental_distribute_dataset(dataset, options)
        if not has_known_shapes(dataset.element_spec):
            return distributed
        return WithoutFirstLook(dataset, call.model, distributed)

    def distribute_datasets_from_function(
        self, dataset_fn: object, options: object = None
    ) -> tf.distribute.DistributedDataset:
        """Distribute the dataset that a function makes; see ``tf.distribute.Strategy``."""
        return self._batches(super().distribute_datasets_from_function, dataset_fn, options)

    def _batches(
        self, distribute: Callable[..., object], data: object, options: object
    ) -> tf.distribute.DistributedDataset:
        if self.num_replicas_in_sync == 1:
            return distribute(data, options)
        return DeviceBatches(functools.partial(distribute, data), options)

    def run(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """Run ``fn`` on every replica; see ``tf.distribute.Strategy.run``."""
        keras_step = tf_internals.keras_step(fn, inline=True)  # TensorFlow requires it
        predicting = tf_internals.keras_prediction(fn) if self.num_replicas_in_sync > 1 else None
        if predicting is not None:
            with marked(predicting):
                return super().run(self.extended.predicting(fn), args=args, kwargs=kwargs, options=options)
        if keras_step is None or self.num_replicas_in_sync == 1:
            with warn_of_means(self.num_replicas_in_sync, "devices"):
                return super().run(fn, args=args, kwargs=kwargs, options=options)
        model, fn = keras_step
        with marked(model), self.extended.exact_steps(model, args[0]) as in_replica:

            def step(data: object, *others: object) -> Any:
                with in_replica(data) as batch:
                    return fn(batch, *others)

            return flat_logs(super().run(step, args=args, kwargs=kwargs, options=options))


def check_dataset(dataset: tf.data.Dataset) -> None:
    """Refuse data that TensorFlow cannot split over the devices of a process."""
    if any(isinstance(part, tf.SparseTensorSpec) for part in tf.nest.flatten(dataset.element_spec)):
        raise DataShardError(
            "Cannot split batches of sparse tensors over the devices of one process.",
            received=str(dataset.element_spec),
            fix=f"{_ONE_PROCESS_EACH}, or make the tensors dense or ragged.",
        )


def check_model(model: keras.Model) -> None:
    """Refuse a model that TensorFlow cannot train on several devices of a process."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    received = None
    if getattr(optimizer, "gradient_accumulation_steps", None):
        received = f"gradient_accumulation_steps={optimizer.gradient_accumulation_steps}"
    elif getattr(optimizer, "use_ema", False):
        received = "use_ema=True"
    elif model.steps_per_execution != 1:
        received = f"steps_per_execution={model.steps_per_execution}"
    elif (function := tf_internals.function_of_r(model)) is not None:
        received = f"the R function {function}"
    if received is not None:
        raise ArgumentError(
            "Several devices of one process cannot train with R functions, with an optimizer that "
            "accumulates or averages, or with several steps in one execution.",
            received=received,
            fix=f"{_ONE_PROCESS_EACH}, or leave it out.",
        )
    compile_between_exchanges(model, "several devices")


class _ReplicaShare:
    """One replica in a step: its number of rows, and the number of all rows. It sums over the replicas."""

    gradient_dtype = None
    replica_reductions = 0

    def __init__(self, rows: tf.Tensor, all_rows: tf.Tensor, may_weigh_loss: bool) -> None:
        self.rows = rows
        self.known_rows: tf.Tensor | None = all_rows
        may_be_empty = tf.get_static_value(rows) is None
        self.present = tf.sign(tf.cast(rows, tf.float32)) if may_be_empty else None
        self.mean = MeanOverExamples(self, self, rows, may_weigh_loss=may_weigh_loss)

    def all_reduce(
        self,
        op: tf.distribute.ReduceOp,
        tensors: Sequence[object],
        dtype: tf.DType | None = None,
        *,
        add_rows: bool = False,
    ) -> list[Any]:
        """Reduce each tensor over the replicas."""
        # Not the method of the object: within a step it is that of the model's exchanges.
        of_context = tf.distribute.ReplicaContext.all_reduce
        return list(of_context(tf.distribute.get_replica_context(), op, list(tensors)))


class _Replicas(tf_internals.MirroredExtended):
    """The replicas of the devices, each on its own thread, one after the other."""

    def __init__(
        self,
        strategy: MirroredStrategy,
        devices: list[str] | None,
        cross_device_ops: tf.distribute.CrossDeviceOps | None,
    ) -> None:
        # By default TensorFlow takes collectives, whose keys count from 1 for every strategy: the keys
        # of two strategies in a process would collide.
        names = devices or [device.name for device in tf.config.list_logical_devices("GPU")]
        gpus = bool(names) and all("GPU" in name for name in names)
        default = tf.distribute.NcclAllReduce if gpus else tf.distribute.ReductionToOneDevice
        super().__init__(strategy, devices=devices, cross_device_ops=cross_device_ops or default())
        self._strategy = strategy
        self._shares: list[_ReplicaShare] = []
        self._in_step = False

    def reported_replicas(self) -> int | None:
        """Return 1 within a step, so that Keras divides nothing by the number of replicas."""
        return 1 if self._in_step else None

    @contextlib.contextmanager
    def exact_steps(self, model: keras.Model, data: object) -> Iterator[Callable[[Any], Any]]:
        """Run steps of the replicas that add up to the step on the whole batch; yield their contexts."""
        local = self._strategy.experimental_local_results
        parts = [tf.nest.map_structure(lambda part, i=i: local(part)[i], data) for i in range(self._count)]
        rows = [count_examples(part) for part in parts]
        total = tf.cast(tf.add_n(rows), tf.float32)
        of_keras = not tf_internals.overrides(model, "train_step")
        self._shares = [_ReplicaShare(own, total, of_keras) for own in rows]

        def mean() -> MeanOverExamples:
            return self._share().mean

        self._in_step = True
        try:
            # One context around all replicas, as it overrides methods of the model, which they share.
            with (
                tf_internals.optimizer_hooks(
                    model,
                    lambda loss: mean().scale_loss(loss),
                    lambda *arguments: mean().apply(*arguments),
                ),
                tf_internals.loss_shares(
                    model, lambda divisor: mean().share(divisor), lambda: mean().weight()
                ),
                sums_from_tapes(),
            ):
                yield lambda batch: self._step(model, batch)
        finally:
            self._in_step = False
            self._shares = []

    def predicting(self, fn: Callable[..., object]) -> Callable[..., Any]:
        """Return a function for the replicas that calls ``fn``, a step of Keras's ``predict``."""

        def in_replica(*args: object, **kwargs: object) -> Any:
            step = ReplicaStep(NoPeers(), None, _replica(), self._count)
            return step.enclose(fn)(*args, **kwargs)

        return in_replica

    @contextlib.contextmanager
    def _step(self, model: keras.Model, batch: object) -> Iterator[Any]:
        share = self._share()
        state = model.metrics_variables if share.present is not None and model.built else []
        local = self._strategy.experimental_local_results
        step = ReplicaStep(share.mean, share.present, _replica(), self._count)
        with without_stand_in([local(v.value)[_replica()] for v in state], share.rows), step.entered():
            yield at_least_one(batch, share.rows) if share.present is not None else batch

    def given(self, value: Any, replica: int) -> Any:
        """Return ``value``, but zero in a step for which the replica has no examples."""
        present = self._shares[replica].present if self._shares else None
        return scale(value, present) if present is not None and value.dtype.is_floating else value

    @property
    def _count(self) -> int:
        return len(self.worker_devices)

    def _share(self) -> _ReplicaShare:
        return self._shares[_replica()]


@contextlib.contextmanager
def _without_cluster() -> Iterator[None]:
    """Remove TF_CONFIG within the context: the stock strategy would take it for its own cluster."""
    given = os.environ.pop("TF_CONFIG", None)
    try:
        yield
    finally:
        if given is not None:
            os.environ["TF_CONFIG"] = given


def _replica() -> int:
    """Return the number of the replica that runs on this thread."""
    return int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))


def _check_cross_device_ops(given: object) -> None:
    if given is not None and not isinstance(given, tf.distribute.CrossDeviceOps):
        raise ArgumentError(
            "`cross_device_ops` must be a tf.distribute.CrossDeviceOps.",
            received=describe(given),
            fix="Pass tf.distribute.HierarchicalCopyAllReduce(), for example.",
        )


def local_devices(argument: str, names: object) -> list[str]:
    """Return the names of devices of this process, from all forms of TensorFlow, as "/device:CPU:0"."""
    there = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()]
    given = list(names) if isinstance(names, list | tuple) else [names]
    plain = [_plain_name(getattr(name, "name", name)) for name in given]
    if not plain or not set(plain) <= set(there) or len(set(plain)) < len(plain):
        raise ArgumentError(
            f"`{argument}` must name devices that this process has, each once.",
            received=", ".join(map(repr, given)) or "none",
            fix=f"Choose among {', '.join(name.lower() for name in there)}.",
        )
    return [f"/device:{name}" for name in plain]


def _plain_name(name: object) -> str | None:
    """Return a device's name in the form "CPU:0"; None if it is not that of a device of this process."""
    try:
        device = tf.DeviceSpec.from_string(name)
    except (ValueError, AttributeError, TypeError):  # TensorFlow cannot read it, or it is not a text
        return None
    if device.device_type is None or device.job not in (None, "localhost"):
        return None
    return f"{device.device_type}:{device.device_index or 0}"

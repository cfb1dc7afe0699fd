"""The ``extended`` objects that do the work of TensorFlow's strategies. TensorFlow does not export them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy as _multi_worker
from tensorflow.python.distribute import mirrored_strategy as _mirrored
from tensorflow.python.distribute import one_device_strategy as _one_device
from tensorflow.python.distribute import values as _values
from tensorflow.python.eager import record as _record

from tfdistr.tf_internals.keras_loop import innermost
from tfdistr.tf_internals.keras_scope import auto_means_gpus


def tape_is_active() -> bool:
    """Return whether a ``GradientTape`` currently records, for which TensorFlow has no public name."""
    return bool(_record.could_possibly_record())


class _ReportsReplicas:
    """A mixin that reports one replica to code for one replica."""

    def reported_replicas(self) -> int | None:
        """Return the number of replicas that code sees while it runs; None for the real number."""
        return None

    @property
    def _num_replicas_in_sync(self) -> int:
        told = self.reported_replicas()
        return int(super()._num_replicas_in_sync) if told is None else told  # type: ignore[misc]


_KERAS_SAYS_WHEN = "synchronization" in inspect.signature(keras.Variable.__init__).parameters
_INITIALIZE = keras.Variable._initialize.__code__


class _KerasVariables:
    """A mixin that makes variables as Keras needs them: they turn into numbers, and metrics sum when read.

    Keras 3.8 says only that they are to be summed, and TensorFlow would do this at each change of them. From
    Keras 3.9 ``keras.Variable`` has ``synchronization`` and says when. In Keras, only metrics have variables
    that are summed. (``Variable._initialize`` is on the stack of all Keras variables.)
    """

    def _resource_creator_scope(self) -> object:
        """Return what TensorFlow enters with ``scope()``, in which a model is compiled."""
        return auto_means_gpus() if tf.config.list_physical_devices("GPU") else None

    def _create_variable(self, next_creator: object, **kwargs: object) -> object:
        summed = kwargs.get("aggregation") == tf.VariableAggregation.SUM and not kwargs.get("trainable")
        if not _KERAS_SAYS_WHEN and summed and innermost([_INITIALIZE]):
            kwargs["synchronization"] = tf.VariableSynchronization.ON_READ
        return give_numbers(super()._create_variable(next_creator, **kwargs))  # type: ignore[misc]


class OneDeviceExtended(_one_device.OneDeviceExtended):  # type: ignore[misc]
    """TensorFlow's object behind ``OneDeviceStrategy``; new variables may be on other devices."""

    #: The device of new variables; None for the device of the strategy.
    device_of_new: str | None = None

    def _create_variable(self, next_creator: Any, **kwargs: Any) -> object:
        if self.device_of_new is None or kwargs.get("colocate_with") is not None:
            return super()._create_variable(next_creator, **kwargs)
        kwargs.pop("colocate_with", None)
        with tf.device(self.device_of_new):
            return next_creator(**kwargs)


class MirroredExtended(_ReportsReplicas, _KerasVariables, _mirrored.MirroredExtended):  # type: ignore[misc]
    """TensorFlow's object behind ``MirroredStrategy``; a subclass overrides ``given``."""

    def given(self, value: object, replica: int) -> Any:
        """Return the value that a replica adds to an all-reduce. The replica called it with ``value``."""
        return value

    def _batch_reduce_to(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> object:
        pairs = [(self._value_of(value), destination) for value, destination in value_destination_pairs]
        return super()._batch_reduce_to(reduce_op, pairs, options)

    def _value_of(self, value: object) -> Any:
        if not isinstance(value, _values.PerReplica):
            return value
        return _values.PerReplica([self.given(part, i) for i, part in enumerate(value.values)])


class MultiWorkerExtended(_ReportsReplicas, _KerasVariables, _multi_worker.CollectiveAllReduceExtended):  # type: ignore[misc]
    """TensorFlow's object behind ``MultiWorkerMirroredStrategy``. Its hooks have public names here.

    They do the same as the stock strategy. A subclass overrides them: how to run a function on the local
    replicas, to reduce values outside of a replica or in one, to gather values, and to split a dataset.
    """

    def join(self, num_workers: int, index: int) -> None:
        """Set the rank of this object, made for one worker, among workers that TensorFlow does not know."""
        self._num_workers, self._id_in_cluster, self._is_chief = num_workers, index, index == 0

    #: Whether ``on_initial_value`` gives every worker the chief's value.
    shares_initial_values = False

    @property
    def num_workers(self) -> int:
        """Number of workers that train."""
        return int(self._num_workers)

    @property
    def worker_index(self) -> int:
        """Index of this worker among the workers that train."""
        return int(self._id_in_cluster)

    @property
    def is_chief(self) -> bool:
        """Return whether this worker is the chief."""
        return bool(self._is_chief)

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The strategy that this object belongs to."""
        return self._container_strategy()

    def replica_context(self) -> tf.distribute.ReplicaContext:
        """Return the context of this worker's first replica."""
        return tf.distribute.ReplicaContext(
            self.strategy, replica_id_in_sync_group=self._get_replica_id_in_sync_group(0)
        )

    on_replicas = _multi_worker.CollectiveAllReduceExtended._call_for_each_replica
    on_reduce = _multi_worker.CollectiveAllReduceExtended._reduce_to
    on_batch_reduce = _multi_worker.CollectiveAllReduceExtended._batch_reduce_to
    on_replica_reduce = _multi_worker.CollectiveAllReduceExtended._replica_ctx_all_reduce
    on_gather = _multi_worker.CollectiveAllReduceExtended._gather_to_implementation
    on_dataset = _multi_worker.CollectiveAllReduceExtended._experimental_distribute_dataset

    def on_initial_value(self, value: tf.Tensor, name: str | None) -> tf.Tensor:
        """Return the initial value of a variable on this worker, before the chief's value replaces it."""
        return value

    def _call_for_each_replica(self, fn: Callable[..., object], args: object, kwargs: object) -> object:
        return self.on_replicas(fn, args, kwargs)

    def _get_variable_creator_initial_value(
        self, replica_id: int, device: Any, primary_var: Any, **kwargs: Any
    ) -> object:
        given = kwargs["initial_value"]

        def checked() -> object:
            value = given() if callable(given) else given
            if not hasattr(value, "wrapped_value"):  # not the value of a checkpoint
                value = self.on_initial_value(
                    tf.convert_to_tensor(value, dtype=kwargs.get("dtype")), kwargs.get("name")
                )
            return value

        if self.shares_initial_values:
            return checked
        kwargs["initial_value"] = checked
        return super()._get_variable_creator_initial_value(
            replica_id=replica_id, device=device, primary_var=primary_var, **kwargs
        )

    def _reduce_to(self, reduce_op: object, value: object, destinations: object, options: object) -> object:
        return self.on_reduce(reduce_op, value, destinations, options)

    def _batch_reduce_to(self, reduce_op: object, value_destination_pairs: object, options: object) -> object:
        return self.on_batch_reduce(reduce_op, value_destination_pairs, options)

    def _replica_ctx_all_reduce(self, reduce_op: object, value: object, options: object = None) -> object:
        return self.on_replica_reduce(reduce_op, value, options)

    def _gather_to_implementation(
        self, value: object, destinations: object, axis: int, options: object
    ) -> object:
        return self.on_gather(value, destinations, axis, options)

    def _experimental_distribute_dataset(self, dataset: tf.data.Dataset, options: object) -> object:
        return self.on_dataset(dataset, options)


# The distance of the seeds of two workers: a prime that no user is likely to add to a seed.
_BETWEEN_SEEDS = 1_000_003


def seed_offset(worker: object, dtype: tf.DType | str) -> tf.Tensor:
    """Return what a worker, or a virtual worker, adds to the state of a random number generator."""
    distance = tf.cast(worker, dtype) * tf.constant(_BETWEEN_SEEDS, dtype)
    return tf.stack([distance, tf.zeros_like(distance)])


class ShareScope(keras.StatelessScope):  # type: ignore[misc]
    """A scope in which variables keep their values, and new values are collected.

    * A variable that sums (of a metric) begins with zero, so that its new value is the share's part.
    * A generator of random numbers begins with the seed of the virtual worker.
    * Other variables have their real values.

    (A variable with no value in the scope must be its TensorFlow variable, ``Variable._value``: regularizers
    get what ``get_current_value`` returns. A generator's variable is known by its name only.)

    Args:
        protected: Variables that the step may not change.
        on_change: Called with such a variable if the step changes it.
        on_use: Called with a variable that the step reads although an optimizer is to change it.
        common: The ids of variables that every share changes alike; they have their real values.
    """

    def __init__(
        self,
        virtual_worker: tf.Tensor,
        protected: Sequence[object],
        on_change: Callable[[Any], None],
        on_use: Callable[[Any], None],
        common: Collection[int] = (),
    ) -> None:
        super().__init__(collect_losses=True)
        self._virtual_worker, self._common = virtual_worker, common
        self._protected = {id(variable) for variable in protected}
        self._on_change, self._on_use = on_change, on_use
        self._begun: dict[int, Any] = {}
        #: The ids of the variables that an optimizer is to change.
        self.awaited: set[int] = set()
        #: The variables with new values, in the order of their first change, and their numbers of changes.
        self.changed: list[Any] = []
        self.changes: dict[int, int] = {}

    def add_update(self, update: tuple[object, object]) -> None:
        """Collect the new value of a variable."""
        variable, _ = update
        if id(variable) in self._protected:
            self._on_change(variable)
        if id(variable) not in self.changes:
            self.changed.append(variable)
        self.changes[id(variable)] = self.changes.get(id(variable), 0) + 1
        super().add_update(update)

    def get_current_value(self, variable: object) -> Any:
        """Return the value of a variable for this share."""
        if id(variable) in self.awaited:
            self._on_use(variable)
        known = super().get_current_value(variable)
        if known is not None:
            return known
        if id(variable) not in self._begun:
            self._begun[id(variable)] = self._first_value(variable)
        return self._begun[id(variable)]

    def begun(self, variable: object) -> Any:
        """Return the value with which the share began; None if it did not read the variable."""
        return self._begun.get(id(variable))

    def _first_value(self, variable: Any) -> object:
        value = variable._value
        if value is None:
            return None
        if variable.aggregation == "sum" and id(variable) not in self._common:
            return tf.zeros(variable.shape, variable.dtype)
        if is_seed(variable):
            return tf.convert_to_tensor(value) + seed_offset(self._virtual_worker, value.dtype)
        return value


def is_seed(variable: Any) -> bool:
    """Return whether a Keras variable is the state of a random number generator."""
    return variable.name == "seed_generator_state" and tuple(variable.shape) == (2,)


def logs_are_metrics(model: keras.Model, logs: object) -> bool:
    """Return whether Keras's loop takes ``logs`` of a step for the values of all metrics."""
    return isinstance(logs, dict) and set(logs) == set(model.get_metrics_result())


class _Number:
    """A mixin with the conversions of a ``tf.Variable``, which callbacks use.

    TensorFlow's distributed variables (not exported) have no ``float()`` and no ``int()``, and NumPy cannot
    read those of metrics.
    """

    def __float__(self) -> float:
        return float(self.numpy())  # type: ignore[attr-defined]

    def __int__(self) -> int:
        return int(self.numpy())  # type: ignore[attr-defined]

    def __complex__(self) -> complex:
        return complex(self.numpy())  # type: ignore[attr-defined]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)  # type: ignore[attr-defined]


class MirroredVariable(_Number, _values.MirroredVariable):  # type: ignore[misc]
    """A variable with the same value on all replicas."""


class SyncOnReadVariable(_Number, _values.SyncOnReadVariable):  # type: ignore[misc]
    """A variable whose value is the sum or the mean over the replicas."""


_WITH_NUMBERS = {_values.MirroredVariable: MirroredVariable, _values.SyncOnReadVariable: SyncOnReadVariable}


def give_numbers(variable: object) -> object:
    """Return ``variable``. A distributed variable now turns into numbers; others are unchanged.

    The class of this one object changes, because TensorFlow's function that makes it knows only its own.
    """
    variable.__class__ = _WITH_NUMBERS.get(type(variable), type(variable))
    return variable

"""The handling of replicas, values and datasets for workers with one replica each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.collectives.comparison import check_variable
from tfdistr.collectives.interface import Collectives
from tfdistr.collectives.ring import TensorFlowCollectives
from tfdistr.data.order.shard import Own, distribute_batches, is_share, leave_to_tensorflow
from tfdistr.errors import ArgumentError
from tfdistr.strategies.backup import watch_backups
from tfdistr.strategies.build import WithoutFirstLook, has_known_shapes, let_keras_build
from tfdistr.strategies.end_of_data import warn_at_early_end
from tfdistr.strategies.exact.exchange import NoPeers, check_no_strange_optimizer, scale
from tfdistr.strategies.exact.known_steps import KnownSteps
from tfdistr.strategies.exact.nan_loss import LossWatch
from tfdistr.strategies.join import training_jobs
from tfdistr.strategies.noted_layers import NotedLayers
from tfdistr.strategies.same_calls import SameCalls
from tfdistr.strategies.xla import compile_between_exchanges, without_xla


@dataclass(frozen=True)
class StepContext:
    """The context of a step. ``OneReplica.within()`` changes it temporarily.

    Attributes:
        reported_replicas: The number of replicas that Keras sees; None for the real number.
        share: The virtual worker (``Share``) whose step is being traced, or ``NoPeers``.
        present: 0 in a step for which this worker has no examples, so that it adds nothing to a sum; else 1.
            None if every worker has examples.
        known_rows: The number of rows of the global batch, a float32 scalar; None to ask the peers.
        never_empty: Whether every worker has at least one row.
        sums: Sums over the workers of variables, by the id of the variable: no peer is asked for them.
        local_only: Whether only this worker runs this: other variables have this worker's values.
        kind: "train" or "test", if it is known which step runs.
        trace: Records the step for the trace of the run (``StepTrace``).
    """

    reported_replicas: int | None = None
    share: Any = None
    present: tf.Tensor | None = None
    known_rows: tf.Tensor | None = None
    never_empty: bool = False
    sums: Mapping[int, tf.Tensor] = field(default_factory=dict)
    local_only: bool = False
    kind: str | None = None
    trace: Any = None


class PeerChecks:
    """The state of the checks that all workers do the same.

    Attributes:
        loss: Finds the worker whose loss was the first that is not finite.
        calls: Checks that callbacks make the same calls.
        agreement: Compares the models of the workers in the running training (``Agreement``).
        given_rates: The learning rates of new optimizers on this worker; the chief's rates replace them.
    """

    def __init__(self, collectives: Collectives) -> None:
        self.loss, self.calls = LossWatch(collectives), SameCalls(collectives)
        self.agreement: Any = None
        self.given_rates: list[str] = []


def device_of_rank() -> str:
    """Return the device on which an MPI rank computes. MPI sends from the memory of the host."""
    return "/device:GPU:0" if tf.config.get_visible_devices("GPU") else "/device:CPU:0"


class OneReplica(tf_internals.MultiWorkerExtended):
    """The replica, which runs on the calling thread; workers exchange values through ``Collectives``.

    TensorFlow handles a worker with several local replicas, and a worker without peers.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        resolver: Any,
        options: Any,
        collectives: Collectives | None = None,
    ) -> None:
        super().__init__(
            strategy,
            cluster_resolver=resolver,
            communication_options=options,
            devices=None if resolver else (device_of_rank(),),
        )
        #: Exchanges tensors with the peers; None if TensorFlow's own code runs.
        self.collectives = collectives
        self.shares_initial_values = collectives is not None
        if collectives is not None:
            self.join(collectives.num_workers, collectives.index)
        elif self.one_replica and self.num_workers > 1:
            self.collectives = TensorFlowCollectives(
                training_jobs(resolver),
                self.worker_index,
                self.worker_devices[0],
                options.implementation.name.lower(),
                options.bytes_per_pack,
                options.timeout_seconds,
            )
        if self.collectives is not None:
            self.checks = PeerChecks(self.collectives)
        #: The context of the running step.
        self.step = StepContext()
        #: The type in which the gradients of Keras's step are sent; None for their own type.
        self.gradient_dtype: tf.DType | None = None
        #: Arranges calls of Keras's methods (``KerasCalls``); None without peers.
        self.calls: Any = None
        #: The virtual workers (``VirtualWorkers``); None without them.
        self.virtual: Any = None
        #: Number of all-reduces that replicas have requested. It shows whether a model communicates.
        self.replica_reductions = 0
        #: What the check of the first batch has found.
        self.known = KnownSteps()
        #: Why the result of the running call of fit is not that of one worker, as far as it is known.
        self.differences: list[str] = []
        #: Notes the layers that draw random numbers, or normalize with the rows of one worker.
        self.layers = NotedLayers(self.differences)
        with tf.device("CPU:0"):
            #: Number of this worker's rows in the last step that was written by the user.
            self.rows_of_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="rows_of_step")

    @contextlib.contextmanager
    def within(self, **changes: Any) -> Iterator[None]:
        """Change the fields of `StepContext` within the context."""
        self.step, before = replace(self.step, **changes), self.step
        try:
            yield
        finally:
            self.step = before

    def reported_replicas(self) -> int | None:
        """Return the number of replicas that Keras sees; None for the real number."""
        return self.step.reported_replicas

    @property
    def known_rows(self) -> tf.Tensor | None:
        """The number of rows of the global batch, if it is known."""
        return self.step.known_rows

    @property
    def present(self) -> tf.Tensor | None:
        """0 in a step for which this worker has no examples."""
        return self.step.present

    @property
    def one_replica(self) -> bool:
        """Return whether this worker has one device."""
        return len(self.worker_devices) == 1

    @property
    def place(self) -> tuple[int, Own]:
        """The number of shares of a batch, and this worker's share or shares; see ``bounds``."""
        return self.virtual.place if self.virtual else (self.num_workers, self.worker_index)

    def is_common(self, value: object) -> bool:
        """Return whether a variable is the same on all workers: with virtual workers, every variable is."""
        if not isinstance(value, tf.Variable):
            return False
        return self.virtual is not None or id(value) in self._ids_of_common()

    def _ids_of_common(self) -> set[int]:
        """Return the ids of the TensorFlow variables of metrics that get the rows of all workers."""
        return {id(variable.value) for variable in self.known.common_variables()}

    def own_metrics(self, model: keras.Model) -> list[keras.Variable]:
        """Return the metric variables of a model of which each worker has a part, not the same value."""
        common = set(map(id, self.known.common_variables(model)))
        return [variable for variable in model.metrics_variables if id(variable) not in common]

    def on_replicas(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> object:
        """Run a function on the calling thread, as the replica."""
        if not self.one_replica:
            return super().on_replicas(fn, args, kwargs)
        args, kwargs = tf.nest.map_structure(self.local, (args or (), kwargs or {}))
        # Without the device scope, gradients would be reduced one by one.
        with self.replica_context(), tf.device(self.worker_devices[0]):
            return fn(*args, **kwargs)

    def on_reduce(self, op: object, value: object, destinations: object, options: object) -> object:
        """Reduce a value over the workers."""
        if id(value) in self.step.sums:
            return self.step.sums[id(value)]
        if self.step.local_only or self.is_common(value):
            return self._own(value)
        if self.collectives is None:
            return super().on_reduce(op, value, destinations, options)
        self._before_call("a read of a value of all workers, such as a metric")
        return self.collectives.all_reduce(op, [self._own(value)])[0]

    def on_batch_reduce(self, op: Any, pairs: Any, options: Any) -> object:
        """Reduce several values of the replica over the workers."""
        if not self.one_replica:
            return super().on_batch_reduce(op, pairs, options)
        values = [self._own(value) for value, _ in pairs]
        if self.step.share is not None:
            return list(self.step.share.all_reduce(op, values))
        return self._reduce_of_replica(self.collectives, op, values) if self.collectives else values

    def on_replica_reduce(self, op: object, value: object, options: object) -> object:
        """Reduce a nested value of the replica over the workers."""
        if self.step.share is not None:
            return tf.nest.pack_sequence_as(value, self.step.share.all_reduce(op, tf.nest.flatten(value)))
        if self.collectives is None:
            return super().on_replica_reduce(op, value, options)
        reduced = self._reduce_of_replica(self.collectives, op, tf.nest.flatten(value))
        return tf.nest.pack_sequence_as(value, reduced)

    def on_gather(self, value: object, destinations: object, axis: int, options: object) -> object:
        """Concatenate the workers' values."""
        self._need_all("gather values")
        if self.collectives is None:
            return super().on_gather(value, destinations, axis, options)
        self._before_call("a gather of values")
        return self.collectives.all_gather(self._own(value), axis)

    def on_dataset(self, dataset: tf.data.Dataset, options: object) -> object:
        """Return this worker's rows of every global batch, unless the user chose another sharding policy."""
        self._need_all("train, evaluate or predict")
        call = tf_internals.keras_call()
        if call is not None:
            let_keras_build(call.model)
            warn_at_early_end(call, is_chief=self.is_chief)
        if self.calls is not None:
            if call is not None:
                self._before_call(f"{call.method}()")
            self.calls.dataset_given(dataset)
        elif call is not None:
            if self.virtual is not None:
                without_xla(call.model)
            elif not self.one_replica:
                compile_between_exchanges(call.model, "several devices")
            if call.method == "fit" and "epoch_iterator" not in call.variables:  # no validation
                watch_backups(call)
        if not self.one_replica or (
            not is_share(dataset) and leave_to_tensorflow(dataset, self.num_workers, fits=call is not None)
        ):
            return super().on_dataset(dataset, options)
        if not is_share(dataset):
            dataset = distribute_batches(dataset, *self.place)
        if call is None or not has_known_shapes(dataset.element_spec):
            return dataset
        return WithoutFirstLook(dataset, call.model)

    @contextlib.contextmanager
    def without_peers(self) -> Iterator[None]:
        """Let the replica's sums be its own values within the context; it sees no other replica."""
        shares, self.shares_initial_values = self.shares_initial_values, True
        try:
            with (
                self.within(share=NoPeers(), reported_replicas=1),
                self.replica_context(),
                tf.device(self.worker_devices[0]),
            ):
                yield
        finally:
            self.shares_initial_values = shares

    def on_initial_value(self, value: tf.Tensor, name: str | None) -> tf.Tensor:
        """Refuse a variable whose shape or type differs from the chief's: the workers' models differ."""
        if isinstance(self.step.share, NoPeers):
            return value
        if self.shares_initial_values and not tf.executing_eagerly():
            check_no_strange_optimizer()
        if self.collectives is not None and tf.executing_eagerly():
            self._before_call("a new variable")
            kind = f"{value.dtype.name} {value.shape.as_list()}".replace(", ", "x")
            check_variable(self.collectives, self.worker_index, name, kind)
            if (name or "").endswith("learning_rate") and value.shape.rank == 0:
                self.checks.given_rates.append(f"{float(value):.7g}")
        return self.collectives.broadcast(value) if self.collectives and self.shares_initial_values else value

    def read_together(self, variables: Iterable[Any]) -> dict[int, tf.Tensor]:
        """Return values of Keras variables over all workers, for `StepContext.sums`. All must call it."""
        assert self.collectives is not None
        if self.virtual:
            return {}
        distributed = [v.value for v in variables if isinstance(v.value, tf.distribute.DistributedValues)]
        common = self._ids_of_common()
        sums = [v for v in distributed if v.aggregation == tf.VariableAggregation.SUM and id(v) not in common]
        values = self.collectives.all_reduce(tf.distribute.ReduceOp.SUM, list(map(self._own, sums)))
        return {id(variable): value for variable, value in zip(sums, values, strict=True)}

    def share_from_chief(self, variables: Iterable[Any]) -> None:
        """Give variables of Keras or TensorFlow the values of the chief. All workers must call it."""
        assert self.collectives is not None
        local = list(map(self.local_variable, variables))
        chiefs = self.collectives.from_chief([variable.read_value() for variable in local])
        for variable, value in zip(local, chiefs, strict=True):
            variable.assign(value)

    def _before_call(self, call: str) -> None:
        """Check, in a callback, that the peers make the same call."""
        if tf.executing_eagerly():
            self.checks.calls.before(call)

    def _need_all(self, what: str) -> None:
        if self.step.local_only:
            raise ArgumentError(
                f"A callback that runs on the chief alone cannot {what}: that needs all workers.",
                received="a call from a callback that writes or that chief_only() marked",
                fix="Do it in a callback without the mark, which runs on every worker.",
            )

    def local(self, value: object) -> Any:
        """This worker's part of a distributed value; variables stay as they are."""
        if isinstance(value, tf.distribute.DistributedValues) and not isinstance(value, tf.Variable):
            return self.strategy.experimental_local_results(value)[0]
        return value

    def local_variable(self, variable: object) -> Any:
        """This worker's part of a variable of Keras or TensorFlow: to read all may need a collective."""
        value = variable.value if isinstance(variable, keras.Variable) else variable
        return value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value

    def _own(self, value: object) -> Any:
        value = self.local_variable(value)
        return tf.convert_to_tensor(value) if isinstance(value, tf.Variable) else value

    def _reduce_of_replica(
        self, collectives: Collectives, op: object, values: list[tf.Tensor]
    ) -> list[tf.Tensor]:
        self.replica_reductions += 1
        if self.present is not None:
            values = [scale(v, self.present) if v.dtype.is_floating else v for v in values]
        return collectives.all_reduce(op, values)

"""``MultiWorkerMirroredStrategy``: Keras 3 on many workers, with the result of one worker.

A subclass of TensorFlow's strategy is enough for Keras's own ``fit``, ``evaluate`` and ``predict``:
nothing in Keras or TensorFlow is patched. Where a worker has one replica (one process per device), it differs
from the stock class:

* The replica runs on the calling thread, not on its own thread, so that R closures can be traced.
* A dataset is split batch by batch: each worker takes its rows of every global batch. So all workers make
  the same steps as one worker would, and no worker has to ask whether its peers have data.
* Gradients are weighted by their numbers of examples, and clipped after the sum.
* Per-step logs are the worker's own; they cost no collective. The metrics of an epoch are global.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.collectives import nccl
from tfdistr.collectives.choice import nccl_or_ring
from tfdistr.collectives.communication_options import Exchange, check_exchange, check_resolver
from tfdistr.collectives.interface import Collectives
from tfdistr.collectives.ring import TensorFlowCollectives
from tfdistr.errors import ClusterStartError
from tfdistr.rendezvous.peer_failure import peer_message, report, report_early_end
from tfdistr.strategies.common_random_numbers import draw_alike
from tfdistr.strategies.exact.loss_weighting import predict_exactly, run_exactly
from tfdistr.strategies.exact.replica import OneReplica
from tfdistr.strategies.exact.step_logs import flat_logs
from tfdistr.strategies.join import Joined, join_cluster, start_error
from tfdistr.strategies.keras_calls import KerasCalls
from tfdistr.strategies.mean_loss import warn_of_means
from tfdistr.strategies.outside_scope import guard_scope, trained_alone
from tfdistr.strategies.rank import note_strategy
from tfdistr.strategies.virtual import check_virtual_workers
from tfdistr.strategies.virtual.global_step import VirtualWorkers, run_virtual_workers
from tfdistr.strategies.virtual.rounding import use_one_thread
from tfdistr.strategies.xla import marked
from tfdistr.utils import at_exit
from tfdistr.utils.arguments import GRADIENT_DTYPES, check_choice, check_optional_int
from tfdistr.utils.tuning import TUNING, tune_this_process

if TYPE_CHECKING:
    import keras

    from tfdistr.data.pipeline.worker_data import WorkerData

log = logging.getLogger("tfdistr")

# Minimum seconds for NCCL to connect.
_TO_CONNECT = 10.0
#: Seconds that a finished worker waits at exit for its peers. Then it leaves in any case.
EXIT_TIMEOUT = 60.0


class MultiWorkerMirroredStrategy(tf.distribute.MultiWorkerMirroredStrategy):  # type: ignore[misc]
    """A strategy that trains Keras 3 models on one or many workers.

    Drop-in for ``tf.distribute.MultiWorkerMirroredStrategy``. Create it before anything else that uses
    TensorFlow, build and compile the model inside ``strategy.scope()``, and call ``fit``, ``evaluate``
    and ``predict`` on every worker with the same arguments and the same dataset (batched with the global
    batch size). Each worker then takes its rows of each batch, and the weights, the metrics and the
    predictions equal the results of one worker. Without TF_CONFIG, the processes that
    ``mpiexec`` or ``srun`` has started are the workers; without these, it is a strategy for one worker.

    Set the seed (``keras.utils.set_random_seed``) to get one worker's order from ``shuffle``, with or without
    a ``seed`` argument. Without a global seed, several workers draw a common one, which enters every order.
    Python's ``random`` and ``numpy.random`` continue with the chief's numbers on all workers.

    Args:
        cluster_resolver: A ``tf.distribute.cluster_resolver.ClusterResolver`` that describes the
            cluster; by default TF_CONFIG does.
        communication_options: A ``tf.distribute.experimental.CommunicationOptions``. ``implementation`` is
            the same as ``communication``: AUTO is "auto". There is none for MPI. ``bytes_per_pack`` of 0 is
            the default. A collective that takes longer than ``timeout_seconds`` raises
            ``tf.errors.DeadlineExceededError``. Over MPI, in a ``tf.function``, TensorFlow reports it as a
            ``tf.errors.UnknownError``.
        communication: The backend of the collectives: TensorFlow's "ring" or "nccl" (the ring without GPUs,
            or with two workers on one GPU, and the chief says so), "mpi" (the processes that ``mpiexec`` has
            started, or those in TF_CONFIG, which then need MPICH but no ``mpiexec``), or "auto" (the
            default): NCCL if each worker sees a GPU of its own, MPI if none sees a GPU, all have the same
            MPICH, and they can connect to each other, else the ring.
        gradient_dtype: The type in which gradients travel in the steps of Keras's ``fit``: "float32", or
            "bfloat16", which halves the bytes and keeps 8 significant bits. The sums are added to the weights
            in float32.
        virtual_workers: Number of virtual workers, at least the number of workers; None for none. The results
            of Keras's ``fit``, ``evaluate`` and ``predict`` are then bitwise identical on any number of
            workers: they depend on the number of virtual workers instead. Each operation has one thread.
        bytes_per_pack: Gradients are sent in packs of about this many bytes; by default 4 MiB.
        start_timeout: Seconds that the workers wait for each other at the start.
        heartbeat_timeout: Seconds without a heartbeat after which a worker counts as lost.

    Raises:
        ArgumentError: An argument is not of the form above, or ``communication_options`` is combined with
            ``communication`` or ``bytes_per_pack``.
        ClusterConfigError: TF_CONFIG is not valid.
        ClusterStartError: TensorFlow is already in use, the port is not available, or peers are missing.
        JobMismatchError: The workers have different addresses, or different versions of packages.

    Source: keras-team/keras#20585 (why the stock class cannot train Keras 3 models).

    Example:
        >>> strategy = tfdistr.MultiWorkerMirroredStrategy()
        >>> with strategy.scope():
        ...     model = keras.Sequential([keras.layers.Dense(1)])
        ...     model.compile("sgd", "mse")
        >>> history = model.fit(dataset, epochs=2)
    """

    def __init__(
        self,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None,
        communication_options: tf.distribute.experimental.CommunicationOptions | None = None,
        *,
        communication: str | None = None,
        gradient_dtype: str = "float32",
        virtual_workers: int | None = None,
        bytes_per_pack: int | None = None,
        start_timeout: float = 300.0,
        heartbeat_timeout: float = 30.0,
    ) -> None:
        exchange = check_exchange(communication_options, communication, bytes_per_pack)
        check_resolver(cluster_resolver)
        count = check_optional_int("virtual_workers", virtual_workers)
        if TUNING not in os.environ:  # else a launcher keeps the log of this process
            tf_internals.look_quietly()
        tune_this_process(exact=count is not None)
        if count is not None:
            check_virtual_workers(count, communication=exchange.communication)
            use_one_thread()
        until = time.monotonic() + start_timeout
        joined = join_cluster(cluster_resolver, exchange, start_timeout, heartbeat_timeout)
        #: The addresses of the workers, in order; none with MPI's launcher.
        self.tasks = joined.tasks
        # The logs of Keras's last step that have rows. A log would keep the graph of the step.
        self._logs: list[weakref.ref[tf.Tensor]] = []
        self._make_replica(joined, exchange, start_timeout)
        extended = self.extended
        #: The backend of the gradients: "mpi", "ring" or "nccl"; "none" for one worker.
        self.communication = self._choose(exchange.communication, until, in_order=count is not None)
        if count is not None:
            check_virtual_workers(count, workers=extended.num_workers, devices=len(extended.worker_devices))
            extended.virtual = VirtualWorkers(extended, count)
        self.gradient_dtype = gradient_dtype
        if extended.collectives is not None:
            extended.calls = KerasCalls(extended)
            draw_alike(extended.collectives)
        note_strategy(self)
        #: Whether anything ran under this strategy, and whether it has left its peers.
        self.used = self.left = False
        if extended.num_workers > 1:
            guard_scope(self)
            at_exit.register(self.leave)
            at_exit.register(self._check_used)

    def _make_replica(self, joined: Joined, exchange: Exchange, start_timeout: float) -> None:
        """Make the replica, with a server of TensorFlow unless this worker is an MPI rank."""
        used = "auto" if exchange.communication == "mpi" else nccl_or_ring(exchange.communication)
        options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=exchange.bytes_per_pack,
            timeout_seconds=exchange.timeout_seconds,
            implementation=tf.distribute.experimental.CommunicationImplementation[used.upper()],
        )
        try:
            # Skips the stock constructor, which would create the stock object in place of OneReplica.
            super(tf.distribute.MultiWorkerMirroredStrategy, self).__init__(
                OneReplica(self, joined.resolver, options, joined.collectives)
            )
        except (tf.errors.OpError, RuntimeError) as error:
            if joined.lifelines:
                joined.lifelines.close()
            raise start_error(error, joined.resolver, start_timeout) from error
        tf_internals.take_back_sigterm()
        extended = self.extended
        if joined.lifelines and extended.collectives is not None:
            extended.collectives.watch(joined.lifelines, self.tasks)
        elif joined.lifelines:
            joined.lifelines.say_goodbye()
        if not extended.one_replica:
            log.warning(
                "This worker has %d devices, so TensorFlow's own replica threads are used: R functions in "
                "the model and Keras 3's fit on several workers fail there. Start one process per device.",
                len(extended.worker_devices),
            )

    def _choose(self, asked: str, until: float, *, in_order: bool) -> str:
        """Return the backend, on which workers with a server of TensorFlow agree here."""
        collectives = self.extended.collectives
        if not isinstance(collectives, TensorFlowCollectives):
            alone = self.num_workers == 1 and self.extended.one_replica
            used = "mpi" if collectives else nccl_or_ring(asked).replace("auto", "ring")
            if asked == "nccl" and used == "ring" and self.is_chief:
                log.warning(nccl.NO_NCCL)
            return "none" if alone else used
        titles = [f"{name} ({address})" for name, address in self.tasks.items()]
        try:
            backend = nccl.choose(collectives, asked, titles, in_order=in_order)
            collectives.use(backend)
            if backend == "nccl":  # before the launcher ends the start
                nccl.connect(collectives, titles, max((until - time.monotonic()) / 2, _TO_CONNECT))
        except ClusterStartError as error:
            collectives.report_failure(report(self.worker_index, error))
            raise
        return backend

    @property
    def virtual_workers(self) -> int | None:
        """Number of virtual workers of all workers; None without them."""
        virtual: VirtualWorkers | None = self.extended.virtual
        return virtual.count if virtual else None

    @property
    def own_virtual_workers(self) -> tuple[range, int] | None:
        """The virtual workers of this worker, and the number of all of them; None without them."""
        virtual: VirtualWorkers | None = self.extended.virtual
        return (virtual.own, virtual.count) if virtual else None

    #: See ``WorkerStrategy``.
    title: str | None = None
    variables_are_remote = False
    layers_are_apart = False

    @property
    def collectives(self) -> Collectives | None:
        """The collectives with the peers; None without peers, or if TensorFlow's threads exchange values."""
        found: Collectives | None = self.extended.collectives
        return found

    def prepare(self, model: keras.Model, data: WorkerData) -> None:
        """Do nothing: the training loop builds the model."""

    def variables_beside(self) -> Sequence[tf.Variable]:
        """Variables outside the model that a checkpoint must have."""
        return self.extended.checks.loss.variables if self.extended.collectives is not None else ()

    @property
    def num_workers(self) -> int:
        """Number of workers that train, the chief included."""
        return int(self.extended.num_workers)

    @property
    def worker_index(self) -> int:
        """Index of this worker among those that train; the chief is 0."""
        return int(self.extended.worker_index)

    @property
    def is_chief(self) -> bool:
        """Return whether this worker writes checkpoints and logs."""
        return bool(self.extended.is_chief)

    @property
    def gradient_dtype(self) -> str:
        """The type in which Keras's ``fit`` sends gradients; read when a step is traced."""
        dtype = self.extended.gradient_dtype
        return str(dtype.name) if dtype else "float32"

    @gradient_dtype.setter
    def gradient_dtype(self, name: str) -> None:
        check_choice("gradient_dtype", name, GRADIENT_DTYPES)
        self.extended.gradient_dtype = None if name == "float32" else tf.as_dtype(name)

    def run(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """Run ``fn`` on this worker's replica; see ``tf.distribute.Strategy.run``.

        Within the steps of Keras's own ``fit`` and ``evaluate`` the gradients are averaged over the
        examples of the global batch. In a custom step, scale the loss as TensorFlow teaches
        (``tf.nn.compute_average_loss``).
        """
        self.used = True
        extended: OneReplica = self.extended
        keras_step = tf_internals.keras_step(fn, inline=True)
        if keras_step is not None:  # the batch may have a name
            given = inspect.signature(keras_step[1]).bind(*args, **(kwargs or {}))
            args, kwargs = given.args, given.kwargs
            keras_step = keras_step if args else None
        if extended.collectives is not None and keras_step is not None and fn.__name__ == "train_step":
            extended.checks.loss.inputs.see(tf.nest.map_structure(extended.local, args[0]))
        if extended.virtual:
            return run_virtual_workers(extended, fn, args, kwargs)
        predicting = None if keras_step else tf_internals.keras_prediction(fn)
        collectives = extended.collectives
        if collectives is None or (keras_step is None and predicting is None):
            model = keras_step[0] if keras_step else predicting
            with marked(model), warn_of_means(self.num_replicas_in_sync, "workers", is_chief=self.is_chief):
                outputs = super().run(fn, args=args, kwargs=kwargs, options=options)
            return flat_logs(outputs) if keras_step else outputs
        data, *others = args
        data = tf.nest.map_structure(extended.local, data)

        def run(fn: Callable[..., Any], batch: object) -> Any:
            whole = super(MultiWorkerMirroredStrategy, self).run
            return whole(fn, args=(batch, *others), kwargs=kwargs, options=options)

        if keras_step is None:
            with marked(predicting):
                return predict_exactly(extended, predicting, fn, data, run)
        model, fn = keras_step
        with extended.layers.noted(model), marked(model):
            logs = run_exactly(extended, model, fn, data, run)
        self._logs = [weakref.ref(log) for log in tf.nest.flatten(logs) if not _is_number(log)]
        return logs

    def reduce(self, reduce_op: object, value: object, axis: int | None = None) -> Any:
        """Reduce ``value`` over the workers; see ``tf.distribute.Strategy.reduce``.

        Two uses by Keras's ``fit`` are special. A log of a step, or a scalar with ``axis=0``, is the worker's
        own value. A first batch, of which Keras needs only the shapes, is the local batch. Nested values are
        reduced one by one.
        """
        self.used = True
        if self.extended.virtual and axis is not None:  # logs are those of the whole batch
            return tf.nest.map_structure(self.extended.local, value)
        if tf.nest.is_nested(value):
            if tf_internals.keras_builds_model():
                return tf.nest.map_structure(self.extended.local, value)
            parts = [self.reduce(reduce_op, part, axis) for part in tf.nest.flatten(value)]
            return tf.nest.pack_sequence_as(value, parts)
        if self.extended.collectives is not None:
            local = self.extended.local(value)
            if axis is not None and (_is_number(local) or any(local is log() for log in self._logs)):
                return local
        return super().reduce(reduce_op, value, axis)

    def barrier(self, name: str, timeout: float) -> None:
        """Wait until every worker is at the barrier ``name``; each name can be used once.

        Args:
            name: Any text, the same on all workers.
            timeout: Seconds to wait at most.

        Raises:
            ClusterStartError: Not every worker arrived within ``timeout`` seconds.
        """
        if self.num_workers == 1:
            return
        try:
            self.extended.collectives.barrier(name, timeout)
        except tf.errors.OpError as error:
            raise ClusterStartError(
                f"Not all {self.num_workers} workers reached the barrier {name!r} within {timeout:g} s.",
                received=str(error.message).split("\n")[0],
                fix="See the log of the missing worker.",
            ) from error

    def report_failure(self, message: str) -> None:
        """Report the failure of this worker to the peers, which then stop with ``message``."""
        if self.num_workers > 1:
            at_exit.unregister(self.leave)
            self.extended.collectives.report_failure(message)

    def leave(self) -> bool:
        """Wait at most a minute until the peers are done: TensorFlow aborts a process whose peer has exited.

        Return whether they are: else MPI must not be ended, since it would wait for them.

        Peers that are not done hear that this program has ended. The process calls it itself when it exits. A
        process that fails does not wait: it reports to its peers.
        """
        self.left = True
        if self.num_workers == 1:
            return True
        at_exit.unregister(self.leave)
        error = getattr(sys, "last_value", None)
        if error is not None and not hasattr(sys, "ps1"):
            self.report_failure(peer_message(error, self.worker_index, self.tasks))
            self.extended.collectives.abandon()
            return False
        try:
            self.barrier("tfdistr/leave", EXIT_TIMEOUT)
        except ClusterStartError as error:
            if isinstance(error.__cause__, tf.errors.DeadlineExceededError):
                self.extended.collectives.pass_on(report_early_end(self.worker_index))
            return False
        with contextlib.suppress(tf.errors.OpError):
            return bool(self.extended.collectives.close())
        return False

    def _check_used(self) -> None:
        """Exit with status 1 if Keras trained in this process, but not under this strategy."""
        error = None if self.used or self.left or hasattr(sys, "last_value") else trained_alone()
        if error is not None:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            if not hasattr(sys, "ps1"):
                at_exit.fail()


def _is_number(value: object) -> bool:
    return bool(getattr(value, "shape", ()) == ())

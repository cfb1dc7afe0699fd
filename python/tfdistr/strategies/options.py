"""The strategies of ``distributed_fit()``, each with its own options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from tfdistr.errors import ArgumentError
from tfdistr.strategies.layer_placement import check_form
from tfdistr.utils.arguments import (
    COMMUNICATION,
    GRADIENT_DTYPES,
    argument,
    check_choice,
    check_optional_int,
    check_optional_seconds,
)
from tfdistr.utils.describe import call_text, describe

UPDATES = ("async", "sync")


@attrs.frozen(kw_only=True)
class StrategyOptions:
    """A strategy of ``distributed_fit()`` and its options.

    Attributes:
        name: The name of the strategy.
    """

    name: ClassVar[str]

    def __str__(self) -> str:
        return call_text(self.name, self)

    @property
    def timeouts(self) -> dict[str, float]:
        """The timeouts that the user has set: without ``cluster``, they are options of the strategy."""
        values = {name: getattr(self, name, None) for name in ("start_timeout", "heartbeat_timeout")}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def options(self) -> dict[str, Any]:
        """The options that belong to this strategy alone, if they are not the defaults."""
        shared = ("communication", "gradient_dtype", "start_timeout", "heartbeat_timeout")
        fields = [field for field in attrs.fields(type(self)) if field.name not in shared]
        values = {field.name: (getattr(self, field.name), field.default) for field in fields}
        return {name: value for name, (value, default) in values.items() if value != default}

    def check_no_timeouts(self) -> None:
        """Refuse timeouts beside ``cluster``, which has its own.

        Raises:
            ArgumentError: There is one.
        """
        for name, value in self.timeouts.items():
            raise ArgumentError(
                f"With `cluster`, `{name}` is an argument of the cluster.",
                received=f"strategy={self.name}({name}={value:g}), and a cluster",
                fix=f"Pass cluster=local_cluster({name}={value:g}), for example.",
            )


@attrs.frozen(kw_only=True)
class _WithTimeouts(StrategyOptions):
    start_timeout: float | None = argument(check_optional_seconds, "start_timeout", default=None)
    heartbeat_timeout: float | None = argument(check_optional_seconds, "heartbeat_timeout", default=None)


@attrs.frozen(kw_only=True)
class MultiWorkerMirrored(_WithTimeouts):
    """Equal workers, which exchange their gradients. `multi_worker_mirrored` describes the options."""

    name: ClassVar[str] = "multi_worker_mirrored"
    communication: str = argument(check_choice, "communication", COMMUNICATION, default="auto")
    gradient_dtype: str = argument(check_choice, "gradient_dtype", GRADIENT_DTYPES, default="float32")


@attrs.frozen(kw_only=True)
class Mirrored(StrategyOptions):
    """Several devices of one process. `mirrored` describes the options."""

    name: ClassVar[str] = "mirrored"
    devices: Any = None  # MirroredStrategy checks it, as it does for custom loops


@attrs.frozen(kw_only=True)
class OneDevice(StrategyOptions):
    """One device of this process. `one_device` describes the options."""

    name: ClassVar[str] = "one_device"
    device: Any = None  # OneDeviceStrategy checks it


@attrs.frozen(kw_only=True)
class ParameterServer(_WithTimeouts):
    """Workers, with the weights on parameter servers. `parameter_server` describes the options."""

    name: ClassVar[str] = "parameter_server"
    update: str = argument(check_choice, "update", UPDATES, default="async")
    replicas_to_aggregate: int | None = argument(check_optional_int, "replicas_to_aggregate", default=None)

    def __attrs_post_init__(self) -> None:
        if self.replicas_to_aggregate is not None and self.update != "sync":
            raise ArgumentError(
                '`replicas_to_aggregate` needs update="sync": otherwise each gradient is applied alone.',
                received=f"update={self.update!r}, replicas_to_aggregate={self.replicas_to_aggregate}",
                fix='Pass update="sync" too, or leave `replicas_to_aggregate` out.',
            )

    def check_workers(self, workers: int) -> None:
        """Refuse to wait for more workers than there are."""
        if self.replicas_to_aggregate is not None and self.replicas_to_aggregate > workers:
            raise ArgumentError(
                "`replicas_to_aggregate` must be at most the number of workers.",
                received=f"replicas_to_aggregate={self.replicas_to_aggregate}, {workers} workers",
                fix=f"Pass replicas_to_aggregate={workers} or less, or start more workers.",
            )


@attrs.frozen(kw_only=True)
class ModelParallel(_WithTimeouts):
    """The layers of one model on several devices. `model_parallel` describes the options."""

    name: ClassVar[str] = "model_parallel"
    placement: Any = attrs.field(converter=check_form)


#: The class of each strategy, by its name.
STRATEGY_OPTIONS: dict[str, type[StrategyOptions]] = {
    each.name: each for each in (MultiWorkerMirrored, Mirrored, OneDevice, ParameterServer, ModelParallel)
}


def as_strategy(strategy: Any) -> StrategyOptions:
    """Return the strategy that a user has passed: an object, or its name.

    Raises:
        ArgumentError: It is neither, or the strategy needs options.
    """
    if isinstance(strategy, StrategyOptions):
        return strategy
    if not isinstance(strategy, str):
        raise ArgumentError(
            "`strategy` must be the name of a strategy or a strategy object.",
            received=describe(strategy),
            fix='Pass strategy="mirrored", or strategy=mirrored(devices=["gpu:0", "gpu:1"]), for example.',
        )
    chosen = STRATEGY_OPTIONS[check_choice("strategy", strategy, tuple(STRATEGY_OPTIONS))]
    if chosen is ModelParallel:
        return ModelParallel(placement=None)  # raises the error about `placement`
    return chosen()


def with_placement(strategy: ModelParallel, placement: Any) -> ModelParallel:
    """Return the strategy with another placement: R passes its function to the workers by name."""
    return attrs.evolve(strategy, placement=placement)


def multi_worker_mirrored(
    *,
    communication: str = "auto",
    gradient_dtype: str = "float32",
    start_timeout: float | None = None,
    heartbeat_timeout: float | None = None,
) -> MultiWorkerMirrored:
    """Choose equal workers, each with a copy of the model, which exchange their gradients in each step.

    This is the default strategy of `distributed_fit`.

    Args:
        communication: The backend for the gradients: "ring" and "nccl" (one GPU per worker) of TensorFlow,
            "mpi", or "auto": MPI if all workers have the same MPICH, see no GPU, and can connect to each
            other, else the ring, and the log of the chief says why.
        gradient_dtype: The type of the gradients between workers: "float32", or "bfloat16", which halves the
            bytes and rounds each gradient to 8 significant bits.
        start_timeout: Without ``cluster``: seconds within which all workers must have joined; by default 300.
        heartbeat_timeout: Without ``cluster``: seconds without a heartbeat after which a worker counts as
            lost; by default 30. The value must be the same in all processes.

    Returns:
        The strategy, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: An argument does not have this form.

    Example:
        >>> multi_worker_mirrored(communication="ring").communication
        'ring'
    """
    return MultiWorkerMirrored(
        communication=communication, gradient_dtype=gradient_dtype, start_timeout=start_timeout,
        heartbeat_timeout=heartbeat_timeout,
    )  # fmt: skip


def mirrored(*, devices: Sequence[str] | None = None) -> Mirrored:
    """Choose several devices of one process, each with a copy of the model.

    Args:
        devices: Names such as ``["gpu:0", "gpu:1"]``; by default all GPUs that the process sees.

    Returns:
        The strategy, to be passed to `distributed_fit`.

    Example:
        >>> mirrored(devices=["cpu:0"]).name
        'mirrored'
    """
    return Mirrored(devices=devices)


def one_device(*, device: str | None = None) -> OneDevice:
    """Choose one device of this process.

    Args:
        device: Its name, such as "gpu:0"; by default the first GPU, or the CPU.

    Returns:
        The strategy, to be passed to `distributed_fit`.

    Example:
        >>> one_device(device="cpu:0").name
        'one_device'
    """
    return OneDevice(device=device)


def parameter_server(
    *,
    update: str = "async",
    replicas_to_aggregate: int | None = None,
    start_timeout: float | None = None,
    heartbeat_timeout: float | None = None,
) -> ParameterServer:
    """Choose workers that compute gradients, and parameter servers that hold the weights.

    It needs ``local_cluster(workers=2, ps=1)``, or a TF_CONFIG that makes this process the chief, while
    `tfdistr server` runs the other tasks.

    Args:
        update: "async": each worker takes whole batches, and its gradient is applied when it arrives. "sync":
            each batch is split over the workers, and the mean of their gradients is applied once.
        replicas_to_aggregate: With "sync": the number of workers whose shares of the batch make a step; later
            shares are dropped. By default all workers.
        start_timeout: Without ``cluster``: seconds within which all servers must have joined; by default 300.
        heartbeat_timeout: Without ``cluster``: seconds that the servers may outlive this process.

    Returns:
        The strategy, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: An argument does not have this form, or does not fit another.

    Example:
        >>> parameter_server(update="sync", replicas_to_aggregate=2).update
        'sync'
    """
    return ParameterServer(
        update=update, replicas_to_aggregate=replicas_to_aggregate, start_timeout=start_timeout,
        heartbeat_timeout=heartbeat_timeout,
    )  # fmt: skip


def model_parallel(
    placement: Mapping[str, str] | Callable[[Any], str | None],
    *,
    start_timeout: float | None = None,
    heartbeat_timeout: float | None = None,
) -> ModelParallel:
    """Choose a model whose layers are on several devices, or on the workers of a cluster.

    Args:
        placement: The place of each layer by its name, such as ``{"dense_1": "worker 0",
            "dense_2": "worker 1"}``, or a function that returns the place of a layer; see
            ``ModelParallelStrategy``.
        start_timeout: Without ``cluster``: seconds within which all servers must have joined; by default 300.
        heartbeat_timeout: Without ``cluster``: seconds that the servers may outlive this process.

    Returns:
        The strategy, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: ``placement`` does not have this form.

    Example:
        >>> model_parallel({"dense_1": "cpu:0", "dense_2": "cpu:0"}).name
        'model_parallel'
    """
    return ModelParallel(
        placement=placement, start_timeout=start_timeout, heartbeat_timeout=heartbeat_timeout
    )

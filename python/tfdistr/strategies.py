"""The strategies by name: what makes each, what can be said of it, and on which clusters it trains."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdistr.arguments import one_of
from tfdistr.errors import ArgumentError

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class Kind:
    """A kind of strategy.

    Attributes:
        module: The module of its class.
        attribute: The name of the class.
        options: The options of the class that ``distributed_fit()`` takes for it.
        one_process: Whether it trains in one process.
        servers: Whether it needs parameter servers.
        client: Whether the chief trains, and the workers, if there are any, only compute for it.
    """

    module: str
    attribute: str
    options: tuple[str, ...] = ()
    one_process: bool = False
    servers: bool = False
    client: bool = False


STRATEGIES = {
    "multi_worker_mirrored": Kind("strategy", "MultiWorkerMirroredStrategy"),
    "mirrored": Kind("mirrored", "MirroredStrategy", ("devices",), one_process=True),
    "one_device": Kind("mirrored", "OneDeviceStrategy", ("device",), one_process=True),
    "parameter_server": Kind(
        "parameter_server.strategy", "parameter_server_strategy", ("update", "replicas_to_aggregate"),
        servers=True,
    ),
    "model_parallel": Kind(
        "model_parallel.strategy", "ModelParallelStrategy", ("placement",), client=True
    ),
}


def make_strategy(name: str = "multi_worker_mirrored", **options: Any) -> tf.distribute.Strategy:
    """Make a strategy by its name.

    Make it first of all, on every worker: before anything else uses TensorFlow. The cluster is that of
    TF_CONFIG; without it, the strategy is one for one worker, or, in a process that ``mpiexec`` or ``srun``
    has started, one for all of its ranks.

    Args:
        name: "multi_worker_mirrored" (every worker has a copy of the model, and each step is made by all),
            "mirrored" (so do the devices of this process), "one_device", "parameter_server" (for the chief
            of servers that `tfdistr server` runs) or "model_parallel" (the layers of one model are on several
            devices, or on workers that `tfdistr server` runs).
        options: What the class of the strategy takes; see ``MultiWorkerMirroredStrategy``,
            ``MirroredStrategy``, ``OneDeviceStrategy`` and ``ModelParallelStrategy``; "parameter_server"
            takes ``start_timeout``.

    Raises:
        ArgumentError: There is no strategy of that name, it has no such option, or a device is not there.
        ClusterConfigError: TF_CONFIG is not valid.
        ClusterStartError: TensorFlow is already in use, the port cannot be had, or peers are missing.

    Example:
        >>> strategy = tfdistr.make_strategy("multi_worker_mirrored", start_timeout=60)
        >>> strategy.num_workers
        1
    """
    kind = STRATEGIES[one_of("name", name, tuple(STRATEGIES))]
    made = getattr(importlib.import_module(f"tfdistr.{kind.module}"), kind.attribute)
    _check_known(name, options, list(inspect.signature(made).parameters), f"The strategy {name!r}")
    strategy: tf.distribute.Strategy = made(**options)
    return strategy


def check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of ``distributed_fit()`` that are those of its strategy.

    Raises:
        ArgumentError: There is no strategy of that name, or it has no such option.
    """
    kind = STRATEGIES[one_of("strategy", name, tuple(STRATEGIES))]
    _check_known(name, options, kind.options, f"Beside its own arguments, distributed_fit() with {name!r}")
    return dict(options)


def check_fits(name: str, workers: int, ps: int, where: str, *, peers: bool = False) -> None:
    """See that a strategy can train on a cluster.

    Args:
        name: Its name.
        workers: Number of processes that train.
        ps: Number of parameter servers.
        where: What says so.
        peers: Whether they all train: ranks of MPI, or workers without a chief.

    Raises:
        ArgumentError: It cannot.
    """

    def fits(kind: Kind) -> bool:
        one = kind.one_process and workers > 1
        return kind.servers == (ps > 0) and not one and not (kind.client and peers)

    kind = STRATEGIES[name]
    if fits(kind):
        return
    if kind.servers:
        rule = f"The strategy {name!r} needs parameter servers."
    elif ps:
        rule = f"The strategy {name!r} has no use for parameter servers."
    elif kind.client:
        rule = f"The strategy {name!r} trains in one process; ranks of MPI cannot compute for it."
    else:
        rule = f"The strategy {name!r} trains in one process."
    servers = f" and {ps} parameter server{'s' * (ps != 1)}" if ps or kind.servers else ""
    fitting = ", ".join(repr(other) for other, its in STRATEGIES.items() if fits(its))
    raise ArgumentError(
        rule,
        received=f"{workers} worker{'s' * (workers != 1)}{servers}, by {where}",
        fix=f"Change the cluster, or pass a strategy that fits it: {fitting}.",
    )


def check_exchange(name: str, communication: Any, gradient_dtype: Any) -> None:
    """See that nobody chooses how workers exchange gradients where they exchange none.

    Raises:
        ArgumentError: The strategy is of that kind, and one of the two is not what it is by default.
    """
    kind = STRATEGIES[name]
    given = {"communication": (communication, "auto"), "gradient_dtype": (gradient_dtype, "float32")}
    chosen = [f"{key}={value!r}" for key, (value, default) in given.items() if value != default]
    if chosen and (kind.servers or kind.client):
        raise ArgumentError(
            f"With {name!r} workers exchange no gradients, so that how they do cannot be chosen.",
            received=", ".join(chosen),
            fix="Leave it out, or pass strategy='multi_worker_mirrored'.",
        )


def count_shares(name: str, workers: int, options: Mapping[str, Any]) -> int:
    """Into how many shares a batch is split: one for each worker, or for each device of a mirrored one."""
    if STRATEGIES[name].client:
        return 1
    if name != "mirrored":
        return workers
    devices = options.get("devices")
    if devices is not None:
        return max(1, len(devices)) if isinstance(devices, list | tuple) else 1
    import tensorflow as tf

    return max(1, len(tf.config.list_physical_devices("GPU")))


def _check_known(name: str, options: Mapping[str, Any], known: Sequence[str], who: str) -> None:
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ArgumentError(
            f"{who} has the options {', '.join(map(repr, known))}." if known else f"{who} has no options.",
            received=", ".join(map(repr, unknown)),
            fix="Leave it out, or correct its name.",
        )

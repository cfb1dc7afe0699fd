"""The strategies of ``distributed_fit()``: one class for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdistr.errors import ArgumentError
from tfdistr.jobs.strategies.base import STRATEGIES, Strategy
from tfdistr.jobs.strategies.mirrored import Mirrored, OneDevice
from tfdistr.jobs.strategies.model_parallel import ModelParallel
from tfdistr.jobs.strategies.multi_worker_mirrored import MultiWorkerMirrored
from tfdistr.jobs.strategies.parameter_server import ParameterServer
from tfdistr.utils.arguments import check_choice
from tfdistr.utils.describe import describe

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = [
    "STRATEGIES",
    "Mirrored",
    "ModelParallel",
    "MultiWorkerMirrored",
    "OneDevice",
    "ParameterServer",
    "Strategy",
]

for each in (MultiWorkerMirrored, Mirrored, OneDevice, ParameterServer, ModelParallel):
    STRATEGIES[each.name] = each


def as_strategy(strategy: object) -> Strategy:
    """Return the strategy that a user has passed: an object, or its name."""
    if isinstance(strategy, Strategy):
        return strategy
    if not isinstance(strategy, str):
        raise ArgumentError(
            "`strategy` must be the name of a strategy or a strategy object.",
            received=describe(strategy),
            fix='Pass strategy="mirrored", or strategy=mirrored(devices=["gpu:0", "gpu:1"]), for example.',
        )
    chosen = STRATEGIES[check_choice("strategy", strategy, tuple(STRATEGIES))]
    if chosen is ModelParallel:
        return ModelParallel(placement=None)  # raises the error about `placement`
    return chosen()


def make_strategy(name: str = "multi_worker_mirrored", **options: object) -> tf.distribute.Strategy:
    """Make a strategy by its name.

    Make it on every worker, before anything else uses TensorFlow. The cluster is in TF_CONFIG. Without
    TF_CONFIG, the strategy is for one worker, or, in a process that ``mpiexec`` or ``srun`` has started, for
    all ranks.

    Args:
        name: "multi_worker_mirrored" (every worker has a copy of the model, and all workers make each step
            together), "mirrored" (the same with the devices of this process), "one_device",
            "parameter_server" (for the chief of servers that `tfdistr server` runs) or "model_parallel" (the
            layers of one model are on several devices, or on workers that `tfdistr server` runs).
        options: The arguments of the strategy's class; see ``MultiWorkerMirroredStrategy``,
            ``MirroredStrategy``, ``OneDeviceStrategy`` and ``ModelParallelStrategy``; "parameter_server"
            takes ``start_timeout``.

    Raises:
        ArgumentError: The strategy, the option or the device does not exist.
        ClusterConfigError: TF_CONFIG is not valid.
        ClusterStartError: TensorFlow is already in use, the port is not available, or peers are missing.
        JobMismatchError: The workers have different addresses, or different versions of packages.

    Example:
        >>> strategy = tfdistr.make_strategy("multi_worker_mirrored", start_timeout=60)
        >>> strategy.num_workers
        1
    """
    made: tf.distribute.Strategy = STRATEGIES[check_choice("name", name, tuple(STRATEGIES))].make(**options)
    return made

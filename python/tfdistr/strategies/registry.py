"""The strategies by name, and the classes that make them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import check_choice

if TYPE_CHECKING:
    import tensorflow as tf


#: The module, and the class or function in it, that makes each strategy.
STRATEGIES = {
    "multi_worker_mirrored": ("strategies.multi_worker_mirrored", "MultiWorkerMirroredStrategy"),
    "mirrored": ("strategies.mirrored", "MirroredStrategy"),
    "one_device": ("strategies.mirrored", "OneDeviceStrategy"),
    "parameter_server": ("servers.chief", "parameter_server_strategy"),
    "model_parallel": ("strategies.model_parallel", "ModelParallelStrategy"),
}


def make_strategy(name: str = "multi_worker_mirrored", **options: Any) -> tf.distribute.Strategy:
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
    module, attribute = STRATEGIES[check_choice("name", name, tuple(STRATEGIES))]
    made = getattr(importlib.import_module(f"tfdistr.{module}"), attribute)
    check_known(list(inspect.signature(made).parameters), options, f"The strategy {name!r}")
    strategy: tf.distribute.Strategy = made(**options)
    return strategy


def check_known(known: Sequence[str], options: Mapping[str, Any], who: str) -> None:
    """Refuse unknown options.

    Args:
        known: The names of the known options.
        options: The user's options.
        who: The owner of the options, for the error.

    Raises:
        ArgumentError: An option is not known.
    """
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ArgumentError(
            f"{who} has the options {', '.join(map(repr, known))}." if known else f"{who} has no options.",
            received=", ".join(map(repr, unknown)),
            fix="Leave it out, or correct its name.",
        )

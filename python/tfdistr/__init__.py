"""tfdistr: train a Keras 3 model on one machine or a cluster, with the result of one worker.

A name is loaded when it is first used: ``import tfdistr`` does not start TensorFlow. So a launcher can set
the environment of its workers, and a strategy can be made, before TensorFlow starts. Import tfdistr before
TensorFlow and Keras: it chooses the kernels that TensorFlow loads.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdistr.supported import check_python as _check_python

_check_python()

from tfdistr._version import __version__ as __version__
from tfdistr.utils import warn as _warn  # noqa: F401  (warnings are passed on from now on)
from tfdistr.utils.interrupts import import_whole
from tfdistr.utils.tuning import choose_kernels as _choose_kernels

_choose_kernels()

if TYPE_CHECKING:  # all public names, for type checkers and for _public()
    from tfdistr import testing as testing
    from tfdistr.cli.kubernetes.manifests import kubernetes_manifests as kubernetes_manifests
    from tfdistr.clusters.local.local_cluster import LocalCluster as LocalCluster
    from tfdistr.clusters.local.local_cluster import local_cluster as local_cluster
    from tfdistr.clusters.ray.ray_cluster import RayCluster as RayCluster
    from tfdistr.clusters.ray.ray_cluster import ray_cluster as ray_cluster
    from tfdistr.clusters.slurm.slurm_cluster import SlurmCluster as SlurmCluster
    from tfdistr.clusters.slurm.slurm_cluster import slurm_cluster as slurm_cluster
    from tfdistr.clusters.ssh.ssh_cluster import SshCluster as SshCluster
    from tfdistr.clusters.ssh.ssh_cluster import ssh_cluster as ssh_cluster
    from tfdistr.compare import Comparison as Comparison
    from tfdistr.compare import compare_strategies as compare_strategies
    from tfdistr.data.datasets import load_dataset as load_dataset
    from tfdistr.data.order.context import WorkerContext as WorkerContext
    from tfdistr.data.order.shard import auto_shard as auto_shard
    from tfdistr.data.order.steps import steps_per_epoch as steps_per_epoch
    from tfdistr.diagnosis import Diagnosis as Diagnosis
    from tfdistr.diagnosis import doctor as doctor
    from tfdistr.errors import ArgumentError as ArgumentError
    from tfdistr.errors import BatchLossWarning as BatchLossWarning
    from tfdistr.errors import CheckpointError as CheckpointError
    from tfdistr.errors import ClusterConfigError as ClusterConfigError
    from tfdistr.errors import ClusterStartError as ClusterStartError
    from tfdistr.errors import DataShardError as DataShardError
    from tfdistr.errors import JobMismatchError as JobMismatchError
    from tfdistr.errors import JobStoppedError as JobStoppedError
    from tfdistr.errors import NotFiniteError as NotFiniteError
    from tfdistr.errors import StepTimeoutError as StepTimeoutError
    from tfdistr.errors import TfdistrError as TfdistrError
    from tfdistr.errors import TfdistrWarning as TfdistrWarning
    from tfdistr.errors import VersionError as VersionError
    from tfdistr.errors import WorkerFailedError as WorkerFailedError
    from tfdistr.fit import distributed_fit as distributed_fit
    from tfdistr.fork_server.servers import stop_warm_workers as stop_warm_workers
    from tfdistr.jobs.result import FitResult as FitResult
    from tfdistr.jobs.strategies import make_strategy as make_strategy
    from tfdistr.jobs.strategies.mirrored import mirrored as mirrored
    from tfdistr.jobs.strategies.mirrored import one_device as one_device
    from tfdistr.jobs.strategies.model_parallel import model_parallel as model_parallel
    from tfdistr.jobs.strategies.multi_worker_mirrored import multi_worker_mirrored as multi_worker_mirrored
    from tfdistr.jobs.strategies.parameter_server import parameter_server as parameter_server
    from tfdistr.parameter_servers.embedding import PartitionedEmbedding as PartitionedEmbedding
    from tfdistr.r.functions import r_function as r_function
    from tfdistr.rendezvous.config import ClusterConfig as ClusterConfig
    from tfdistr.rendezvous.config import ClusterPlan as ClusterPlan
    from tfdistr.rendezvous.config import Task as Task
    from tfdistr.rendezvous.config import cluster_from_env as cluster_from_env
    from tfdistr.rendezvous.config import tf_config as tf_config
    from tfdistr.replays.bisect import Bisection as Bisection
    from tfdistr.replays.bisect import bisect as bisect
    from tfdistr.replays.replay import replay as replay
    from tfdistr.replays.result import Replay as Replay
    from tfdistr.replays.verify import Verification as Verification
    from tfdistr.replays.verify import verify as verify
    from tfdistr.strategies.callbacks import chief_only as chief_only
    from tfdistr.strategies.custom_loop import average_loss as average_loss
    from tfdistr.strategies.custom_loop import distribute as distribute
    from tfdistr.strategies.custom_loop import regularization_loss as regularization_loss
    from tfdistr.strategies.exact.exchange import gather as gather
    from tfdistr.strategies.mirrored import MirroredStrategy as MirroredStrategy
    from tfdistr.strategies.mirrored import OneDeviceStrategy as OneDeviceStrategy
    from tfdistr.strategies.model_parallel import ModelParallelStrategy as ModelParallelStrategy
    from tfdistr.strategies.multi_worker_mirrored import (
        MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
    )
    from tfdistr.strategies.rank import is_chief as is_chief
    from tfdistr.strategies.rank import num_workers as num_workers
    from tfdistr.strategies.rank import worker_index as worker_index
    from tfdistr.training.in_session import in_session as in_session
    from tfdistr.training.learning_rate import WarmUp as WarmUp
    from tfdistr.training.per_worker import per_worker as per_worker
    from tfdistr.training.per_worker import scaled_learning_rate as scaled_learning_rate
    from tfdistr.training.recovery_options import on_failure as on_failure


def _public() -> dict[str, str]:
    """Return the module of each name that the block above imports: it is read, and not executed."""
    (block,) = [node for node in ast.parse(Path(__file__).read_text()).body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {each.name: str(node.module).removeprefix("tfdistr.") for node in imports for each in node.names}


_MODULES = _public()
#: Modules with public names of their own.
_SUBMODULES = [name for name, module in _MODULES.items() if module == "tfdistr"]
__all__ = [name for name in _MODULES if name not in _SUBMODULES]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_whole(f"tfdistr.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'tfdistr' has no attribute {name!r}")
    return getattr(import_whole(f"tfdistr.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, *_SUBMODULES, "__version__"]

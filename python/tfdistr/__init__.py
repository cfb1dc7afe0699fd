"""tfdistr: one call trains a Keras 3 model on one or many workers, with the result of one.

A name is loaded when it is first used: ``import tfdistr`` does not start TensorFlow. So a launcher can set
the environment of its workers, and a strategy can be made, before TensorFlow starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdistr.supported import check_python as _check_python

_check_python()

from tfdistr._utils import warn as _warn  # noqa: F401  (warnings are passed on from now on)
from tfdistr._utils.uninterrupted import import_whole
from tfdistr._version import __version__ as __version__

_MODULES = {
    "ArgumentError": "errors",
    "BatchLossWarning": "errors",
    "ClusterConfig": "cluster.config",
    "ClusterConfigError": "errors",
    "ClusterPlan": "cluster.config",
    "ClusterStartError": "errors",
    "Comparison": "compare",
    "DataShardError": "errors",
    "Diagnosis": "diagnosis",
    "FitResult": "jobs.result",
    "JobMismatchError": "errors",
    "JobStoppedError": "errors",
    "LocalCluster": "launch.local",
    "MirroredStrategy": "strategies.mirrored",
    "ModelParallelStrategy": "strategies.model_parallel",
    "MultiWorkerMirroredStrategy": "strategies.multi_worker_mirrored",
    "OneDeviceStrategy": "strategies.mirrored",
    "PartitionedEmbedding": "parameter_server.embedding",
    "RayCluster": "launch.ray_cluster",
    "SlurmCluster": "launch.slurm_cluster",
    "SshCluster": "launch.ssh_cluster",
    "StepTimeoutError": "errors",
    "Task": "cluster.config",
    "TfdistrError": "errors",
    "TfdistrWarning": "errors",
    "VersionError": "errors",
    "WarmUp": "training.warm_up",
    "WorkerContext": "data.context",
    "WorkerFailedError": "errors",
    "auto_shard": "data.shard",
    "average_loss": "strategies.losses",
    "chief_only": "strategies.callbacks",
    "cluster_from_env": "cluster.config",
    "compare_strategies": "compare",
    "distribute": "strategies.custom_loop",
    "distributed_fit": "fit",
    "doctor": "diagnosis",
    "gather": "strategies.gather",
    "is_chief": "strategies.place",
    "kubernetes_manifests": "script.kubernetes.manifests",
    "load_dataset": "datasets",
    "local_cluster": "launch.local",
    "make_strategy": "strategies.registry",
    "num_workers": "strategies.place",
    "r_function": "_utils.r_function",
    "ray_cluster": "launch.ray_cluster",
    "regularization_loss": "strategies.losses",
    "scaled_learning_rate": "training.learning_rate",
    "slurm_cluster": "launch.slurm_cluster",
    "ssh_cluster": "launch.ssh_cluster",
    "steps_per_epoch": "data.steps",
    "stop_warm_workers": "launch.warm.servers",
    "tf_config": "cluster.config",
    "worker_index": "strategies.place",
}
__all__ = list(_MODULES)
#: Modules with public names of their own.
_SUBMODULES = ("testing",)

if TYPE_CHECKING:
    from tfdistr import testing as testing
    from tfdistr._utils.r_function import r_function as r_function
    from tfdistr.cluster.config import ClusterConfig as ClusterConfig
    from tfdistr.cluster.config import ClusterPlan as ClusterPlan
    from tfdistr.cluster.config import Task as Task
    from tfdistr.cluster.config import cluster_from_env as cluster_from_env
    from tfdistr.cluster.config import tf_config as tf_config
    from tfdistr.compare import Comparison as Comparison
    from tfdistr.compare import compare_strategies as compare_strategies
    from tfdistr.data.context import WorkerContext as WorkerContext
    from tfdistr.data.shard import auto_shard as auto_shard
    from tfdistr.data.steps import steps_per_epoch as steps_per_epoch
    from tfdistr.datasets import load_dataset as load_dataset
    from tfdistr.diagnosis import Diagnosis as Diagnosis
    from tfdistr.diagnosis import doctor as doctor
    from tfdistr.errors import ArgumentError as ArgumentError
    from tfdistr.errors import BatchLossWarning as BatchLossWarning
    from tfdistr.errors import ClusterConfigError as ClusterConfigError
    from tfdistr.errors import ClusterStartError as ClusterStartError
    from tfdistr.errors import DataShardError as DataShardError
    from tfdistr.errors import JobMismatchError as JobMismatchError
    from tfdistr.errors import JobStoppedError as JobStoppedError
    from tfdistr.errors import StepTimeoutError as StepTimeoutError
    from tfdistr.errors import TfdistrError as TfdistrError
    from tfdistr.errors import TfdistrWarning as TfdistrWarning
    from tfdistr.errors import VersionError as VersionError
    from tfdistr.errors import WorkerFailedError as WorkerFailedError
    from tfdistr.fit import distributed_fit as distributed_fit
    from tfdistr.jobs.result import FitResult as FitResult
    from tfdistr.launch.local import LocalCluster as LocalCluster
    from tfdistr.launch.local import local_cluster as local_cluster
    from tfdistr.launch.ray_cluster import RayCluster as RayCluster
    from tfdistr.launch.ray_cluster import ray_cluster as ray_cluster
    from tfdistr.launch.slurm_cluster import SlurmCluster as SlurmCluster
    from tfdistr.launch.slurm_cluster import slurm_cluster as slurm_cluster
    from tfdistr.launch.ssh_cluster import SshCluster as SshCluster
    from tfdistr.launch.ssh_cluster import ssh_cluster as ssh_cluster
    from tfdistr.launch.warm.servers import stop_warm_workers as stop_warm_workers
    from tfdistr.parameter_server.embedding import PartitionedEmbedding as PartitionedEmbedding
    from tfdistr.script.kubernetes.manifests import kubernetes_manifests as kubernetes_manifests
    from tfdistr.strategies.callbacks import chief_only as chief_only
    from tfdistr.strategies.custom_loop import distribute as distribute
    from tfdistr.strategies.gather import gather as gather
    from tfdistr.strategies.losses import average_loss as average_loss
    from tfdistr.strategies.losses import regularization_loss as regularization_loss
    from tfdistr.strategies.mirrored import MirroredStrategy as MirroredStrategy
    from tfdistr.strategies.mirrored import OneDeviceStrategy as OneDeviceStrategy
    from tfdistr.strategies.model_parallel import ModelParallelStrategy as ModelParallelStrategy
    from tfdistr.strategies.multi_worker_mirrored import (
        MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
    )
    from tfdistr.strategies.place import is_chief as is_chief
    from tfdistr.strategies.place import num_workers as num_workers
    from tfdistr.strategies.place import worker_index as worker_index
    from tfdistr.strategies.registry import make_strategy as make_strategy
    from tfdistr.training.learning_rate import scaled_learning_rate as scaled_learning_rate
    from tfdistr.training.warm_up import WarmUp as WarmUp


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_whole(f"tfdistr.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'tfdistr' has no attribute {name!r}")
    return getattr(import_whole(f"tfdistr.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, *_SUBMODULES, "__version__"]

"""tfdistr: one call trains a Keras 3 model on one or many workers, with the result of one.

Names are loaded when they are first used: ``import tfdistr`` does not start TensorFlow, so that a
launcher can set the environment of its workers, and a strategy can be made first.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = {
    "ArgumentError": "errors",
    "ClusterConfig": "cluster",
    "ClusterConfigError": "errors",
    "ClusterPlan": "cluster",
    "ClusterStartError": "errors",
    "Comparison": "compare",
    "DataShardError": "errors",
    "Diagnosis": "diagnosis",
    "FitResult": "result",
    "JobMismatchError": "errors",
    "JobStoppedError": "errors",
    "LocalCluster": "launch.local",
    "MirroredStrategy": "mirrored",
    "ModelParallelStrategy": "model_parallel.strategy",
    "MpiCluster": "launch.mpi",
    "MultiWorkerMirroredStrategy": "strategy",
    "OneDeviceStrategy": "mirrored",
    "PartitionedEmbedding": "parameter_server.embedding",
    "Task": "cluster",
    "TfdistrError": "errors",
    "WarmUp": "warm_up",
    "WorkerContext": "data.context",
    "WorkerFailedError": "errors",
    "auto_shard": "data.shard",
    "average_loss": "losses",
    "chief_only": "callbacks",
    "cluster_from_env": "cluster",
    "compare_strategies": "compare",
    "distribute": "custom_loop",
    "distributed_fit": "fit",
    "doctor": "diagnosis",
    "is_chief": "place",
    "load_dataset": "datasets",
    "local_cluster": "launch.local",
    "make_strategy": "strategies",
    "mpi_cluster": "launch.mpi",
    "num_workers": "place",
    "regularization_loss": "losses",
    "scaled_learning_rate": "scaling",
    "steps_per_epoch": "scaling",
    "stop_warm_workers": "launch.warm.servers",
    "tf_config": "cluster",
    "worker_index": "place",
}
__all__ = list(_MODULES)

if TYPE_CHECKING:
    from tfdistr.callbacks import chief_only as chief_only
    from tfdistr.cluster import ClusterConfig as ClusterConfig
    from tfdistr.cluster import ClusterPlan as ClusterPlan
    from tfdistr.cluster import Task as Task
    from tfdistr.cluster import cluster_from_env as cluster_from_env
    from tfdistr.cluster import tf_config as tf_config
    from tfdistr.compare import Comparison as Comparison
    from tfdistr.compare import compare_strategies as compare_strategies
    from tfdistr.custom_loop import distribute as distribute
    from tfdistr.data.context import WorkerContext as WorkerContext
    from tfdistr.data.shard import auto_shard as auto_shard
    from tfdistr.datasets import load_dataset as load_dataset
    from tfdistr.diagnosis import Diagnosis as Diagnosis
    from tfdistr.diagnosis import doctor as doctor
    from tfdistr.errors import ArgumentError as ArgumentError
    from tfdistr.errors import ClusterConfigError as ClusterConfigError
    from tfdistr.errors import ClusterStartError as ClusterStartError
    from tfdistr.errors import DataShardError as DataShardError
    from tfdistr.errors import JobMismatchError as JobMismatchError
    from tfdistr.errors import JobStoppedError as JobStoppedError
    from tfdistr.errors import TfdistrError as TfdistrError
    from tfdistr.errors import WorkerFailedError as WorkerFailedError
    from tfdistr.fit import distributed_fit as distributed_fit
    from tfdistr.launch.local import LocalCluster as LocalCluster
    from tfdistr.launch.local import local_cluster as local_cluster
    from tfdistr.launch.mpi import MpiCluster as MpiCluster
    from tfdistr.launch.mpi import mpi_cluster as mpi_cluster
    from tfdistr.launch.warm.servers import stop_warm_workers as stop_warm_workers
    from tfdistr.losses import average_loss as average_loss
    from tfdistr.losses import regularization_loss as regularization_loss
    from tfdistr.mirrored import MirroredStrategy as MirroredStrategy
    from tfdistr.mirrored import OneDeviceStrategy as OneDeviceStrategy
    from tfdistr.model_parallel.strategy import ModelParallelStrategy as ModelParallelStrategy
    from tfdistr.parameter_server.embedding import PartitionedEmbedding as PartitionedEmbedding
    from tfdistr.place import is_chief as is_chief
    from tfdistr.place import num_workers as num_workers
    from tfdistr.place import worker_index as worker_index
    from tfdistr.result import FitResult as FitResult
    from tfdistr.scaling import scaled_learning_rate as scaled_learning_rate
    from tfdistr.scaling import steps_per_epoch as steps_per_epoch
    from tfdistr.strategies import make_strategy as make_strategy
    from tfdistr.strategy import MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy
    from tfdistr.warm_up import WarmUp as WarmUp


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tfdistr' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tfdistr.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

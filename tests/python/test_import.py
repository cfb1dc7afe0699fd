"""What ``import tfdistr`` gives, and what it does not do."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tfdistr

PUBLIC = {
    "ArgumentError", "BatchLossWarning", "ClusterConfig", "ClusterConfigError", "ClusterPlan",
    "ClusterStartError",
    "Comparison", "DataShardError", "Diagnosis", "FitResult", "JobMismatchError", "JobStoppedError",
    "LocalCluster",
    "MirroredStrategy",
    "ModelParallelStrategy",
    "MultiWorkerMirroredStrategy", "OneDeviceStrategy", "PartitionedEmbedding",
    "RayCluster", "SlurmCluster", "SshCluster", "StepTimeoutError", "Task", "TfdistrError", "TfdistrWarning",
    "VersionError", "WarmUp",
    "WorkerContext", "WorkerFailedError", "auto_shard", "average_loss",
    "chief_only", "cluster_from_env", "compare_strategies", "distribute", "distributed_fit", "doctor",
    "gather",
    "is_chief",
    "kubernetes_manifests",
    "load_dataset", "local_cluster", "make_strategy", "num_workers", "r_function",
    "ray_cluster", "regularization_loss",
    "scaled_learning_rate", "slurm_cluster", "ssh_cluster", "steps_per_epoch", "stop_warm_workers",
    "tf_config", "worker_index",
}  # fmt: skip


def test_tensorflow_is_not_imported_before_it_is_needed():
    code = (
        "import sys, tfdistr\n"
        "tfdistr.tf_config(worker=['a:1', 'b:2']); tfdistr.local_cluster(); tfdistr.distributed_fit\n"
        "tfdistr.load_dataset('digits').arrays(); tfdistr.FitResult; tfdistr.TfdistrError\n"
        "print({'tensorflow', 'keras'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("set()\n", "")


def test_every_public_name_is_there():
    assert set(tfdistr.__all__) == PUBLIC
    for name in PUBLIC:
        found = getattr(tfdistr, name)
        assert found.__name__ == name
        assert found.__doc__


def test_dir_lists_the_public_names():
    assert set(dir(tfdistr)) == PUBLIC | {"__version__", "testing"}


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="module 'tfdistr' has no attribute 'distributed_fitt'"):
        getattr(tfdistr, "distributed_fitt")  # noqa: B009

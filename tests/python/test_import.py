"""What ``import tfdistr`` gives, and what it does not do."""

import ast
import functools
import subprocess
import symtable
import sys

import pytest
from paths import ROOT

import tfdistr

PUBLIC = {
    "ArgumentError", "BatchLossWarning", "Bisection", "CheckpointError", "ClusterConfig",
    "ClusterConfigError", "ClusterPlan",
    "ClusterStartError",
    "Comparison", "DataShardError", "Diagnosis", "FitResult", "JobMismatchError", "JobStoppedError",
    "LocalCluster",
    "MirroredStrategy",
    "ModelParallelStrategy",
    "MultiWorkerMirroredStrategy", "NotFiniteError", "OneDeviceStrategy", "PartitionedEmbedding",
    "RayCluster", "Replay",
    "SlurmCluster", "SshCluster", "StepTimeoutError", "Task", "TfdistrError", "TfdistrWarning",
    "VersionError", "WarmUp",
    "WorkerContext", "WorkerFailedError", "auto_shard", "average_loss", "bisect",
    "chief_only", "cluster_from_env", "compare_strategies", "distribute", "distributed_fit", "doctor",
    "gather",
    "is_chief", "mirrored", "model_parallel", "multi_worker_mirrored", "on_failure", "one_device",
    "parameter_server", "per_worker",
    "kubernetes_manifests",
    "load_dataset", "local_cluster", "make_strategy", "num_workers", "r_function",
    "ray_cluster", "regularization_loss", "replay",
    "scaled_learning_rate", "slurm_cluster", "ssh_cluster", "steps_per_epoch", "stop_warm_workers",
    "tf_config", "worker_index",
}  # fmt: skip


def test_tensorflow_is_not_imported_before_it_is_needed():
    code = (
        "import sys, tfdistr\n"
        "tfdistr.tf_config(worker=['a:1', 'b:2']); tfdistr.local_cluster(); tfdistr.distributed_fit\n"
        "tfdistr.load_dataset('digits').arrays(); tfdistr.FitResult; tfdistr.TfdistrError\n"
        "tfdistr.testing.assert_same_fit\n"
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


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="module 'tfdistr' has no attribute 'distributed_fitt'"):
        getattr(tfdistr, "distributed_fitt")  # noqa: B009


@functools.cache
def names_in(module: str) -> set[str]:
    """What a module of the core defines or imports; of a folder, its modules too."""
    path = ROOT / "python" / module.replace(".", "/")
    own = [file.stem for file in path.iterdir()] if path.is_dir() else []
    text = (path / "__init__.py" if own else path.with_suffix(".py")).read_text()
    symbols = symtable.symtable(text, module, "exec").get_symbols()
    found = {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}
    return {*found, *own, "__file__"}


def test_what_others_import_of_the_core_is_there():
    """Nothing else runs all benchmarks, examples and tools, so that a name that has changed would stay."""
    folders = [ROOT / name for name in ("benchmarks", "examples", "tests", "tools")]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    imports = [
        (file, node.module, name.name) for file in files for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "tfdistr"
        for name in node.names
    ]  # fmt: skip
    assert len({file for file, *_ in imports if ROOT / "tests" not in file.parents}) > 5
    assert [each for each in imports if each[2] not in names_in(each[1])] == []

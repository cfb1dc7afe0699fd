"""The groups of both references, and the order in them: a name is in the first group that lists it."""

from __future__ import annotations

from collections.abc import Iterable

#: The names of Python and of R in each group; "*Error" is every name that ends so.
GROUPS = {
    "Train": (
        "distributed_fit", "per_worker", "on_failure", "compare_strategies", "scaled_learning_rate", "WarmUp",
        "tfdistr_mlp",
    ),
    "Clusters": (
        "local_cluster", "ssh_cluster", "slurm_cluster", "ray_cluster", "kubernetes_manifests",
        "tfdistr_kubernetes", "tf_config", "cluster_from_env", "cluster_lines", "is_chief", "worker_index",
        "num_workers", "stop_warm_workers", "LocalCluster", "SshCluster", "SlurmCluster", "RayCluster",
        "ClusterConfig", "ClusterPlan", "Task",
    ),
    "Data": ("load_dataset", "steps_per_epoch", "auto_shard", "WorkerContext"),
    "Results": (
        "FitResult", "Comparison", "trained_model", "evaluate", "predict.tfdistr_fit", "summary.tfdistr_fit",
        "tidy.tfdistr_fit",
    ),
    "Find out why": ("replay", "bisect", "verify", "Replay", "Bisection", "Verification", "Interval"),
    "Strategies and loops": (
        "multi_worker_mirrored", "mirrored", "one_device", "parameter_server", "model_parallel",
        "make_strategy", "multi_worker_mirrored_strategy", "MultiWorkerMirroredStrategy", "MirroredStrategy",
        "OneDeviceStrategy", "ModelParallelStrategy", "distribute", "average_loss", "regularization_loss",
        "gather", "chief_only", "in_session", "PartitionedEmbedding",
    ),
    "Tools": (
        "doctor", "Diagnosis", "tfdistr_run", "install_tfdistr", "tfdistr_sitrep", "tfdistr_config",
        "tfdistr-package", "expect_same_fit", "testing.*", "r_function", "python_function", "schemas.*",
    ),
    "Errors and warnings": ("*Error", "*Warning"),
}  # fmt: skip


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names by their group, in the order of the groups and of the names in each.

    Raises:
        LookupError: A name is in no group.
    """
    found: dict[str, list[tuple[int, str]]] = {group: [] for group in GROUPS}
    for name in names:
        group, place = _place(name)
        found[group].append((place, name))
    return {group: [name for _, name in sorted(members)] for group, members in found.items() if members}


def listed(names: Iterable[str], rows: dict[str, str]) -> str:
    """Return the list of a reference: a table for each group, of the rows of its names."""
    head = "| Name | What |\n|---|---|\n"
    parts = grouped(names).items()
    return "\n".join(
        f"## {group}\n\n{head}" + "".join(f"{rows[name]}\n" for name in members) for group, members in parts
    )


def _place(name: str) -> tuple[str, int]:
    for group, patterns in GROUPS.items():
        for place, pattern in enumerate(patterns):
            start, star, end = pattern.partition("*")
            if name == pattern or (star and name.startswith(start) and name.endswith(end)):
                return group, place
    raise LookupError(f"{name} is in no group of tools/site/groups.py")

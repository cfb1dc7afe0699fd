"""The names of the core that the R package calls, and nothing else.

R imports only this module, so that the modules behind it may move. A name is loaded when R first uses it:
``library(tfdistr)`` does not start TensorFlow, and the fork server of R does not start it too early.
"""

from __future__ import annotations

from typing import Any

from tfdistr._utils.uninterrupted import import_whole
from tfdistr._version import __version__ as __version__

#: The module of each name. After ":" comes the name in that module, if it differs. The module documents it.
NAMES = {
    # For the users of both languages
    "ClusterPlan": "cluster.config",
    "MultiWorkerMirroredStrategy": "strategies.multi_worker_mirrored",
    "auto_shard": "data.shard",
    "average_loss": "strategies.losses",
    "chief_only": "strategies.callbacks",
    "cluster_from_env": "cluster.config",
    "distribute": "strategies.custom_loop",
    "doctor": "diagnosis",
    "gather": "strategies.gather",
    "is_chief": "strategies.place",
    "load_dataset": "datasets",
    "make_strategy": "strategies.registry",
    "num_workers": "strategies.place",
    "python_function": "_utils.function_files",
    "ray_cluster": "launch.ray_cluster",
    "regularization_loss": "strategies.losses",
    "scaled_learning_rate": "training.learning_rate",
    "slurm_cluster": "launch.slurm_cluster",
    "ssh_cluster": "launch.ssh_cluster",
    "steps_per_epoch": "data.steps",
    "stop_warm_workers": "launch.warm.servers",
    "tf_config": "cluster.config",
    "worker_index": "strategies.place",
    # The session
    "run_at_exit": "_utils.at_exit:run",
    "events_for_r": "jobs.events_for_r",
    "in_r": "_utils.in_r",
    "log_in_r": "_utils.in_r",
    "hold_import_hooks": "_utils.import_hooks",
    "ignore_sigpipe": "_utils.session",
    "lives_on": "_utils.session",
    "reload_environ": "_utils.environ",
    "run_import_hooks": "_utils.import_hooks",
    "use_r": "_utils.r_function",
    "user_warned": "_utils.warn",
    "warn_by": "_utils.warn",
    # Clusters
    "describe_local_cluster": "launch.local",
    "parse_tf_config": "cluster.config",
    # distributed_fit()
    "Caller": "jobs.caller",
    "Named": "_utils.foreign",
    "Columns": "data.source",
    "ValueOfR": "_utils.r_values",
    "check_names": "data.source",
    "for_r": "_utils.r_values",
    "check_pyarrow": "data.r_arrays",
    "from_address": "data.arrow_tables",
    "refuse_class": "data.r_arrays",
    "refuse_encoding": "data.r_arrays",
    "refuse_missing": "data.r_arrays",
    "Pull": "data.batch_objects",
    "run_fit": "jobs.run",
    # Its result
    "FitResult": "jobs.result",
    "evaluate": "jobs.apply",
    "predict": "jobs.apply",
    # The values that R functions take to the workers
    "check_own": "_utils.trusted_files",
    "load_value": "_utils.pickles",
    "save_value": "_utils.pickles",
    "is_full": "_utils.disk",
    "refuse_file": "_utils.disk",
    # compare_strategies()
    "Measured": "compare",
    "check_comparison": "compare:check",
    "copies": "training.given_model",
    "measured": "compare",
    "plan_comparison": "compare:plan",
    # expect_same_fit()
    "Probe": "jobs.same_fit.probe",
    "plan_same_fit": "jobs.same_fit.plan",
    "probed": "jobs.same_fit.probe",
    # tfdistr_run() and tfdistr_test()
    "Script": "script.options",
    "Workers": "script.options",
    "judge_self_test": "script.self_test:judge",
    "plan_self_test": "script.self_test:plan",
    "run_script": "script.run",
    "write_manifests": "script.kubernetes.manifests",
    # A worker, and the fork server of workers
    "keep_random_numbers": "checkpoint.random_state",
    "preload": "launch.warm.server",
    "run_worker": "jobs.worker",
    "serve": "launch.warm.server",
    "set_command_line_of_r": "launch.warm.child",
}


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module 'tfdistr.bridge' has no attribute {name!r}")
    module, _, other = NAMES[name].partition(":")
    return getattr(import_whole(f"tfdistr.{module}"), other or name)


def load(name: str) -> None:
    """Load a name, so that it is there when R asks for it."""
    if name not in globals():
        globals()[name] = __getattr__(name)


def __dir__() -> list[str]:
    return [*NAMES, "__version__"]

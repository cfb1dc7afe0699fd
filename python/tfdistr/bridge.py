"""The names of the core that the R package calls, and nothing else.

R imports only this module, so that the modules behind it may move. A name is loaded when R first uses it:
``library(tfdistr)`` does not start TensorFlow, and R's fork server does not start it too early.
"""

from __future__ import annotations

from tfdistr import _MODULES
from tfdistr._version import __version__ as __version__
from tfdistr.utils.interrupts import import_whole

#: The names for the users of both languages.
_COMMON = (
    "ClusterPlan", "MultiWorkerMirroredStrategy", "auto_shard", "average_loss", "chief_only",
    "cluster_from_env", "distribute", "doctor", "gather", "in_session", "is_chief", "load_dataset",
    "make_strategy", "mirrored", "model_parallel", "multi_worker_mirrored", "num_workers", "on_failure",
    "one_device", "parameter_server", "per_worker", "ray_cluster", "regularization_loss",
    "scaled_learning_rate", "slurm_cluster", "ssh_cluster", "steps_per_epoch", "stop_warm_workers",
    "tf_config", "worker_index",
)  # fmt: skip

#: The module of each name. After ":" comes the name in that module, if it differs. The module documents it.
NAMES = {
    # For the users of both languages
    **{name: _MODULES[name] for name in _COMMON},
    "python_function": "utils.function_files",
    # The session
    "run_at_exit": "utils.at_exit",
    "in_r": "r.messages",
    "log_in_r": "r.messages",
    "hold_import_hooks": "r.session",
    "ignore_sigpipe": "utils.processes",
    "lives_on": "utils.processes",
    "quiet_tensorflow": "utils.quiet",
    "reload_environ": "r.session",
    "run_import_hooks": "r.session",
    "use_r": "r.functions",
    "user_warned": "utils.warn",
    "warn_by": "utils.warn",
    "display_for_r": "jobs.display",
    "environment_of_r_worker": "r.functions",
    "error_for_r": "jobs.values_for_r",
    "find_package": "utils.packages",
    "refuse_hook": "training.in_session",
    "refuse_unknown": "r.values",
    "with_placement": "jobs.strategies.model_parallel",
    # Clusters
    "parse_tf_config": "rendezvous.config",
    "local_cluster": "clusters.local.local_cluster:local_cluster_of_r",
    # distributed_fit()
    "Caller": "jobs.caller",
    "FunctionByName": "utils.function_files",
    "Columns": "data.form",
    "Matrix": "data.form",
    "Classes": "data.form",
    "ValueOfR": "utils.describe",
    "check_names": "data.form",
    "for_r": "r.values",
    "describe_for_r": "r.values",
    "check_pyarrow": "r.values",
    "from_address": "data.readers.arrow_tables",
    "refuse_class": "r.values",
    "refuse_encoding": "r.values",
    "refuse_handle": "r.values",
    "refuse_missing": "r.values",
    "Pull": "data.pipeline.batch_objects",
    "run_fit": "jobs.run",
    "fit_from_bytes": "jobs.saved_result:from_bytes",
    "fit_to_bytes": "jobs.saved_result:to_bytes",
    "with_recipe": "jobs.outcome",
    "without_run": "jobs.outcome",
    # Its result
    "fit_for_r": "jobs.values_for_r",
    "worker_columns": "jobs.values_for_r",
    "levels_of_outputs": "jobs.values_for_r",
    "evaluate": "jobs.inference",
    "predict": "jobs.inference",
    # The values that R functions take to the workers
    "can_be_pickled": "utils.pickles",
    "check_own": "utils.trusted_files",
    "load_value": "utils.pickles",
    "save_value": "utils.pickles",
    "is_full": "utils.disk",
    "refuse_file": "utils.disk",
    # compare_strategies()
    "as_model_factory": "training.model_copies.given_model",
    "compare": "compare",
    # replay(), bisect() and verify()
    "bisect_for_r": "replays.values_for_r",
    "replay_for_r": "replays.values_for_r",
    "verify_for_r": "replays.values_for_r",
    # expect_same_fit()
    "plan_same_fit": "same_fit.plan",
    "compare_fits": "testing",
    # tfdistr_sitrep()
    "relevant_variables": "diagnosis",
    # tfdistr_run() and tfdistr_test()
    "Script": "cli.script_options",
    "Workers": "cli.script_options",
    "run_script": "cli.script",
    "write_manifests": "cli.kubernetes.manifests",
    "self_test": "cli.self_test",
    # A worker, and the fork server of workers
    "keep_random_numbers": "checkpoint.python_state",
    "preload": "fork_server.server",
    "run_worker": "jobs.worker",
    "serve": "fork_server.server",
    "set_command_line_of_r": "fork_server.child",
}


def __getattr__(name: str) -> object:
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

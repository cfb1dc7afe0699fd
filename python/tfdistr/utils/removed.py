"""The arguments that are gone, and what to write instead.

The table makes the errors of both languages and the list in docs/upgrading.md.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from tfdistr.errors import ArgumentError
from tfdistr.utils.describe import value_text

#: The words between what to write in a call with `cluster`, and in one without.
WITHOUT_CLUSTER = ", or without `cluster` "

#: What to write instead of each argument of each function, since version 0.3.0.
REMOVED = {
    "distributed_fit": {
        "per_worker_batch_size": "batch_size=per_worker({value})",
        "scale_learning_rate": "batch_size=per_worker(64, scale_learning_rate={value})",
        "warmup_epochs": 'batch_size=per_worker(64, scale_learning_rate="linear", warmup_epochs={value})',
        "communication": "strategy=multi_worker_mirrored(communication={value})",
        "gradient_dtype": "strategy=multi_worker_mirrored(gradient_dtype={value})",
        "devices": "strategy=mirrored(devices={value})",
        "device": "strategy=one_device(device={value})",
        "update": "strategy=parameter_server(update={value})",
        "replicas_to_aggregate": 'strategy=parameter_server(update="sync", replicas_to_aggregate={value})',
        "placement": "strategy=model_parallel(placement={value})",
        "max_restarts": "failures=on_failure(max_restarts={value})",
        "min_workers": "failures=on_failure(min_workers={value})",
        "step_timeout": "failures=on_failure(step_timeout={value})",
        "start_timeout": f"cluster=local_cluster(start_timeout={{value}}){WITHOUT_CLUSTER}"
        "strategy=multi_worker_mirrored(start_timeout={value})",
        "heartbeat_timeout": f"cluster=local_cluster(heartbeat_timeout={{value}}){WITHOUT_CLUSTER}"
        "strategy=multi_worker_mirrored(heartbeat_timeout={value})",
    },
    "slurm_cluster": {"tasks_per_node": "workers_per_host={value}"},
    "ray_cluster": {"num_workers": "workers={value}"},
    "kubernetes_manifests": {"gpus": "gpus_per_worker={value}"},
}

_IN_PYTHON = {"tfdistr_kubernetes": "kubernetes_manifests"}  # functions of R with another name there

#: What to write instead of values that are gone, for the page; the checks of these arguments refuse them.
REMOVED_VALUES = {
    "local_cluster": {'workers="gpus"': "gpus_per_worker=1"},
    "ray_cluster": {
        'resources_per_worker={"CPU": 4}': "cores_per_worker=4",
        'resources_per_worker={"GPU": 1}': "gpus_per_worker=1",
    },
    "compare_strategies": {
        'strategies={"mirrored": {"devices": devices}}': "strategies=[mirrored(devices=devices)]",
    },
}

_Function = TypeVar("_Function", bound=Callable[..., Any])


def refuse_removed(function: str, arguments: Mapping[str, Any]) -> None:
    """Raise an error that names what to write instead, if one of ``arguments`` is gone.

    Raises:
        ArgumentError: An argument is gone.
    """
    table = REMOVED.get(_IN_PYTHON.get(function, function), {})
    for name, value in arguments.items():
        if name in table:
            raise ArgumentError(
                f"{function}() has no argument `{name}` any more.",
                received=f"{name}={value_text(value)}",
                fix=f"Pass {table[name].format(value=value_text(value))}.",
            )


def refuse_unknown(function: str, arguments: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse arguments that an R function has caught by its dots.

    Args:
        function: The name of the function.
        arguments: The arguments that are none of the function, by name.
        known: The names of its arguments.

    Raises:
        ArgumentError: There is one.
    """
    refuse_removed(function, arguments)
    for name in arguments:
        longer = [one for one in known if one.startswith(name)]
        near = longer or difflib.get_close_matches(name, known, n=1)
        raise ArgumentError(
            f"{function}() has no argument `{name}`.",
            received=name,
            fix=f"Write {near[0]}." if near else f"Its arguments are {', '.join(known)}.",
        )


def names_removed(function: _Function) -> _Function:
    """Let a function name what to write instead of an argument that is gone."""

    @functools.wraps(function)
    def checked(*args: Any, **arguments: Any) -> Any:
        refuse_removed(function.__name__, arguments)
        return function(*args, **arguments)

    return cast(_Function, checked)

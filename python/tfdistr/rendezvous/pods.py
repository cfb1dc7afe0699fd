"""The cluster of an Indexed Kubernetes Job: a script in its pods joins without TF_CONFIG.

The manifests of ``tfdistr kubernetes`` set the variables below. Kubernetes adds JOB_COMPLETION_INDEX, the
index of the pod. The names of the pods have the form of HOSTS. The headless Service makes them known.
"""

from __future__ import annotations

import os

from tfdistr.errors import ClusterConfigError
from tfdistr.rendezvous.config import ClusterConfig, Task
from tfdistr.schemas import show

#: The names of the workers, with ``{index}`` for the index.
HOSTS = "TFDISTR_KUBERNETES_HOSTS"
#: The number of workers.
WORKERS = "TFDISTR_KUBERNETES_WORKERS"
#: The port on which each worker listens, in its own pod.
PORT = "TFDISTR_KUBERNETES_PORT"
#: The checkpoint folder of a ``distributed_fit()`` that names none.
RUN_DIR = "TFDISTR_KUBERNETES_RUN_DIR"
INDEX = "JOB_COMPLETION_INDEX"
_PLACE = "{index}"
_FIX = "Write the manifests with: tfdistr kubernetes write; or set TF_CONFIG."


def place_in_job() -> tuple[int, int] | None:
    """Return the index of this worker and the number of workers; None in a process that is in no such pod."""
    if not os.environ.get(HOSTS):
        return None
    workers, index = _number(WORKERS, least=1), _number(INDEX)
    if index >= workers:
        raise ClusterConfigError(
            f"The variable {INDEX} of a pod must be below {WORKERS}.",
            received=f"index {index} of {workers} workers",
            fix=_FIX,
        )
    return index, workers


def kubernetes_cluster_from_env() -> ClusterConfig | None:
    """Derive the cluster of a Kubernetes Job from the environment of one of its pods."""
    place = place_in_job()
    if place is None:
        return None
    index, workers = place
    pattern, port = os.environ[HOSTS], _number(PORT, least=1)
    if _PLACE not in pattern and workers > 1:
        raise ClusterConfigError(
            f"The variable {HOSTS} must have {_PLACE} in the place of the index.",
            received=show(pattern),
            fix=f'Write it like "digits-{_PLACE}.digits".',
        )
    if workers == 1:
        return None
    addresses = tuple(f"{pattern.replace(_PLACE, str(each))}:{port}" for each in range(workers))
    return ClusterConfig({"worker": addresses}, Task("worker", index))


def run_dir_of_pod() -> str | None:
    """Return the checkpoint folder that the manifests name; None if they name none."""
    return os.environ.get(RUN_DIR) or None


def _number(name: str, *, least: int = 0) -> int:
    text = os.environ.get(name, "")
    if not text.isdecimal() or int(text) < least:
        raise ClusterConfigError(
            f"The variable {name} of a pod must be a whole number of at least {least}.",
            received=show(text) if text else "a pod without it",
            fix=_FIX,
        )
    return int(text)

"""Naming the server that is gone, with the variables that it held."""

from __future__ import annotations

import re

from tfdistr.cluster import ClusterConfig, split_address
from tfdistr.errors import WorkerFailedError

_TITLES = {"ps": "parameter server ps", "worker": "worker"}


def lost_server(error: BaseException, config: ClusterConfig, job: str = "ps") -> WorkerFailedError | None:
    """The error that names the server which is gone, if ``error`` is about one.

    Args:
        error: What the chief met.
        config: The cluster.
        job: The job whose servers hold variables.
    """
    import tensorflow as tf

    from tfdistr.parameter_server.strategy import servers_of

    found = re.search(rf"/job:{job}/replica:0/task:(\d+)", str(error))
    if not isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError) or found is None:
        return None
    index = int(found[1])
    address = config.jobs[job][index]
    task = next(t for t in servers_of(config) if (t.type, t.index) == (job, index))
    return WorkerFailedError(
        f"The {_TITLES[job]} {index} at {address} is gone, and with it the variables that it held.",
        worker=servers_of(config).index(task),
        host=split_address(address)[0],
        fix="See in its log why it ended, and train again.",
    )

"""The error for a lost server, with the variables that it held."""

from __future__ import annotations

import re

from tfdistr.errors import WorkerFailedError
from tfdistr.rendezvous.config import ClusterConfig, Task, split_address
from tfdistr.rendezvous.peer_failure import UNREACHED

_ANY = re.compile(r"/job:(\w+)/replica:0/task:(\d+)")
_TITLES = {"ps": "parameter server ps", "worker": "worker"}


def lost_server(error: BaseException, config: ClusterConfig, job: str = "ps") -> WorkerFailedError | None:
    """Return the error that names the lost server, if ``error`` is about one.

    Args:
        error: The error that the chief has caught.
        config: The cluster.
        job: The job whose servers hold variables.
    """
    import tensorflow as tf

    from tfdistr.servers.chief import servers_of

    if not isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError):
        return None
    # The unreachable server comes before other names in the text, such as the devices of a graph.
    named = [*UNREACHED.findall(str(error)), *_ANY.findall(str(error))]
    index = next((int(number) for name, number in named if name == job), None)
    if index is None or index >= len(config.jobs[job]):
        return None
    address = config.jobs[job][index]
    return WorkerFailedError(
        f"The {_TITLES[job]} {index} at {address} was lost, with the variables that it held.",
        worker=servers_of(config).index(Task(job, index)),
        host=split_address(address)[0],
        fix="See its log for the reason, and train again.",
    )

"""How a worker joins its cluster: the steps before its server starts, and the meaning of start errors."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tfdistr import _private
from tfdistr.cluster.config import bypass_proxy
from tfdistr.cluster.lifelines import Lifelines
from tfdistr.cluster.rendezvous import meet
from tfdistr.cluster.rendezvous_protocol import PORT_IN_USE, absence_error, no_port_error, says_port_in_use
from tfdistr.communication.agreement import versions
from tfdistr.communication.collectives import Collectives
from tfdistr.errors import ClusterStartError
from tfdistr.strategies.communication_options import Exchange

#: The warning for the user when the ring takes the place of NCCL.
NO_NCCL = (
    "NCCL needs a GPU on every worker, and TensorFlow sees none here, so the ring carries what the workers "
    'exchange. Pass communication="ring", or install a TensorFlow that can use the GPUs of this machine.'
)
_MAKE_FIRST = "Make the strategy first: right after the imports, before data and models."
# With keras3, R makes a tensor when TensorFlow is imported, but not within a call that makes a strategy.
_IN_R = " Create objects of TensorFlow that it takes in the call itself, not before."
# Seconds that TensorFlow's servers have at least to find each other.
_TO_REGISTER = 10.0
_MISSING_TASKS = re.compile(r"timed out task names:\n((?:/job:\S+\n?)+)")
_TASK_NAME = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)")


def prepare(resolver: Any, start_timeout: float, heartbeat_timeout: float) -> Lifelines | None:
    """Prepare the start of this worker's server.

    Args:
        resolver: Describes the cluster and this worker's task.
        start_timeout: Seconds within which every worker must have registered.
        heartbeat_timeout: Seconds without a sign of life after which a worker counts as gone.

    Returns:
        The lifelines, which report the end of a peer; None if this process trains alone.

    Raises:
        ClusterStartError: TensorFlow is already in use, the port is not available, or workers are missing.
        JobMismatchError: The workers have different addresses, or different versions of packages.
    """
    training = training_jobs(resolver)
    if not training or resolver.task_type not in training:
        return None
    if _private.context_initialized():
        raise ClusterStartError(
            "MultiWorkerMirroredStrategy must be made before anything else uses TensorFlow in this process.",
            received="TensorFlow has already set up its devices (a tensor, a model or a dataset was made)",
            fix=_MAKE_FIRST + (_IN_R if "rpytools" in sys.modules else ""),
        )
    bypass_proxy(addresses(resolver).values())
    began = time.monotonic()
    lifelines = None
    if sum(training.values()) > 1:
        own = f"{resolver.task_type} {resolver.task_id}"
        lifelines = meet(addresses(resolver), own, versions(), start_timeout)
    _private.configure_coordination(
        training,
        leader=f"/job:{_leader_job(training)}/replica:0/task:0",
        register_timeout=max(start_timeout - (time.monotonic() - began), min(start_timeout, _TO_REGISTER)),
        heartbeat_timeout=heartbeat_timeout,
    )
    return lifelines


def join_mpi(
    resolver: Any, exchange: Exchange, start_timeout: float, heartbeat_timeout: float
) -> Collectives:
    """Meet the other workers, and become a rank of one MPI with them, without a launcher of MPI.

    Args:
        resolver: Describes the cluster and this worker's task.
        exchange: How the workers exchange values.
        start_timeout: Seconds within which every worker must have come.
        heartbeat_timeout: Seconds that a worker of this machine may be paused while this one waits.

    Raises:
        ClusterStartError: Workers are missing, or have no MPI or different ones.
        JobMismatchError: The workers have different addresses, or different versions of packages.
    """
    from tfdistr.communication.mpi_join import Joining

    tasks, own = addresses(resolver), f"{resolver.task_type} {resolver.task_id}"
    bypass_proxy(tasks.values())
    until = time.monotonic() + start_timeout
    lifelines = meet(tasks, own, versions(), start_timeout)
    try:
        joining = Joining(lifelines, tasks, own, max(until - time.monotonic(), _TO_REGISTER))
        comm = joining.start()
        from tfdistr.communication.mpi_collectives import MpiCollectives

        collectives = MpiCollectives(
            comm, exchange.bytes_per_pack, heartbeat_timeout, timeout=exchange.timeout_seconds
        )
        joining.finish()
    except BaseException:
        lifelines.close()
        raise
    collectives.watch(lifelines, tasks, joining.end)
    return collectives


def usable(communication: str) -> str:
    """``communication``, or "ring" if it is "nccl" and TensorFlow sees no GPU; initializes no device."""
    if communication == "nccl" and not tf.config.get_visible_devices("GPU"):
        return "ring"
    return communication


def training_jobs(resolver: Any) -> dict[str, int]:
    """The jobs whose tasks train, with the number of tasks of each."""
    jobs = resolver.cluster_spec().as_dict()
    return {job: len(jobs[job]) for job in ("chief", "worker") if job in jobs}


def addresses(resolver: Any) -> dict[str, str]:
    """The addresses of the tasks that train, in the order of the workers, by names such as "worker 0"."""
    spec, jobs = resolver.cluster_spec(), training_jobs(resolver)
    return {f"{job} {i}": spec.task_address(job, i) for job in jobs for i in range(jobs[job])}


def start_error(error: Exception, resolver: Any, timeout: float) -> ClusterStartError:
    """Translate TensorFlow's start error: a port that is taken, or peers that did not come."""
    text = str(getattr(error, "message", error)).strip()
    spec = resolver.cluster_spec()

    def name(job: str, index: Any) -> str:
        return f"{job} {index} ({spec.task_address(job, int(index))})"

    this = name(resolver.task_type, resolver.task_id)
    if says_port_in_use(text):
        return no_port_error(this, text.splitlines()[0], PORT_IN_USE)
    # TensorFlow names the missing tasks if it knows them: on the leader, or if the leader is there.
    named = _MISSING_TASKS.search(text)
    missing = [name(*task) for task in _TASK_NAME.findall(named[1])] if named else []
    leader = name(_leader_job(spec.jobs), 0)
    if not missing and this != leader and isinstance(error, tf.errors.OpError):
        missing = [leader]
    why = f"waited for {', '.join(missing)}" if missing else text.partition("\n")[0]
    return absence_error(this, why, timeout)


def _leader_job(jobs: Iterable[str]) -> str:
    return "chief" if "chief" in jobs else "worker"

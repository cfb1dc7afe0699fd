"""The way of a worker into its cluster: as an MPI rank or with a TensorFlow server; and its start errors."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.collectives.choice import MpiIfAllCan, chooses_mpi
from tfdistr.collectives.communication_options import Exchange
from tfdistr.collectives.comparison import agree, versions
from tfdistr.collectives.interface import Collectives
from tfdistr.collectives.mpi.agreement import Talks
from tfdistr.errors import ClusterStartError
from tfdistr.rendezvous.config import bypass_proxy
from tfdistr.rendezvous.launcher_ranks import place_on_host
from tfdistr.rendezvous.lifelines import Lifelines
from tfdistr.rendezvous.meeting import cluster_to_join, meet
from tfdistr.rendezvous.protocol import PORT_IN_USE, absence_error, no_port_error, says_port_in_use
from tfdistr.rendezvous.slurm_step import place_on_node
from tfdistr.utils.gpus import fix_for_gpu, take_gpu
from tfdistr.utils.shared_names import remove_names
from tfdistr.utils.warn import NOTE

log = logging.getLogger("tfdistr")

_MAKE_FIRST = "Make the strategy first: right after the imports, before data and models."
# With keras3, R makes a tensor when TensorFlow is imported, but not within a call that makes a strategy.
_IN_R = " Create its TensorFlow arguments in the call itself, not before."
# Minimum seconds for TensorFlow's servers to join.
_TO_REGISTER = 10.0
_MISSING_TASKS = re.compile(r"timed out task names:\n((?:/job:\S+\n?)+)")
_TASK_NAME = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)")


class Joined(NamedTuple):
    """The connections of a worker that has joined.

    Attributes:
        collectives: The MPI collectives; None for TensorFlow's.
        lifelines: The connections that report the end of a peer; None with MPI, or without peers.
        resolver: Describes the cluster in which TensorFlow starts a server; None if it starts none.
        tasks: The addresses of the workers, in order; none with MPI's launcher.
    """

    collectives: Collectives | None = None
    lifelines: Lifelines | None = None
    resolver: Any = None
    tasks: Mapping[str, str] = MappingProxyType({})


def join_cluster(
    resolver: object, exchange: Exchange, start_timeout: float, heartbeat_timeout: float
) -> Joined:
    """Join the cluster of a resolver, of MPI's launcher or of TF_CONFIG, whichever comes first."""
    if resolver is None and chooses_mpi(exchange.communication):
        take_gpu(*(place_on_node() or place_on_host() or (0, 1)))
        collectives = mpi_collectives(exchange, start_timeout, heartbeat_timeout)
        if exchange.communication == "auto":
            _say_launcher(collectives)
        os.environ["TF_CONFIG"] = "{}"  # MPI does not need it
        return Joined(collectives)
    if resolver is None:
        config = cluster_to_join()
        if config is not None:
            take_gpu(*(place_on_node() or (0, 1)))
        # Rewritten for TensorFlow, which fails on some forms from R, and on "".
        os.environ.update(config.to_env() if config else {"TF_CONFIG": "{}"})
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    # SlurmClusterResolver sets CUDA_VISIBLE_DEVICES when it is asked: TensorFlow must look for GPUs later.
    tasks = addresses(resolver)
    joined = join(resolver, exchange, start_timeout, heartbeat_timeout)
    return joined._replace(resolver=None if joined.collectives else resolver, tasks=tasks)


def _say_launcher(collectives: Collectives | None) -> None:
    """Log that MPI's launcher has decided; between GPUs, it costs copies."""
    log.info("communication: MPI, whose launcher started this process")
    if collectives is not None and collectives.index == 0 and tf.config.get_visible_devices("GPU"):
        log.warning(
            "The gradients are exchanged over MPI, with copies to the memory of the host, because mpiexec "
            "has started the workers. NCCL needs TF_CONFIG, srun, tfdistr run or a cluster.", extra=NOTE,
        )  # fmt: skip


def join(resolver: Any, exchange: Exchange, start_timeout: float, heartbeat_timeout: float) -> Joined:
    """Join the other workers, and become an MPI rank with them or prepare the start of the servers."""
    training = training_jobs(resolver)
    if not training or resolver.task_type not in training:
        return Joined()
    tasks, own = addresses(resolver), f"{resolver.task_type} {resolver.task_id}"
    bypass_proxy(tasks.values())
    until = time.monotonic() + start_timeout
    lifelines = None
    if len(tasks) > 1:
        mpi = MpiIfAllCan(exchange) if exchange.communication in ("auto", "mpi") else None
        if mpi is None or mpi.obstacle:
            _check_unused()
        asked = {"communication": exchange.communication}
        lifelines = meet(tasks, own, {**versions(), **asked}, start_timeout)
        if mpi is not None:
            left = max(until - time.monotonic(), _TO_REGISTER)
            try:
                collectives = mpi.join(Talks(lifelines, tasks, own, left), lifelines, heartbeat_timeout)
                if collectives is not None:
                    return Joined(collectives)
                _check_unused()
            except BaseException:
                lifelines.close()
                remove_names(os.getpid())
                raise
    else:
        _check_unused()
    tf_internals.configure_coordination(
        training,
        leader=f"/job:{_leader_job(training)}/replica:0/task:0",
        register_timeout=max(until - time.monotonic(), min(start_timeout, _TO_REGISTER)),
        heartbeat_timeout=heartbeat_timeout,
    )
    return Joined(None, lifelines)


def _check_unused() -> None:
    if tf_internals.context_initialized():
        raise ClusterStartError(
            "MultiWorkerMirroredStrategy must be made before anything else uses TensorFlow in this process.",
            received="TensorFlow has already set up its devices (a tensor, a model or a dataset was made)",
            fix=_MAKE_FIRST + (_IN_R if "rpytools" in sys.modules else ""),
        )


def training_jobs(resolver: Any) -> dict[str, int]:
    """Return the jobs whose tasks train, with the number of tasks of each."""
    jobs = resolver.cluster_spec().as_dict()
    return {job: len(jobs[job]) for job in ("chief", "worker") if job in jobs}


def addresses(resolver: Any) -> dict[str, str]:
    """Return the addresses of the tasks that train, in worker order, by names such as "worker 0"."""
    spec, jobs = resolver.cluster_spec(), training_jobs(resolver)
    return {f"{job} {i}": spec.task_address(job, i) for job in jobs for i in range(jobs[job])}


def start_error(error: Exception, resolver: Any, timeout: float) -> ClusterStartError:
    """Return the error for TensorFlow's start error: a port in use, or missing peers."""
    text = str(getattr(error, "message", error)).strip()
    spec = resolver.cluster_spec()

    def name(job: str, index: Any) -> str:
        return f"{job} {index} ({spec.task_address(job, int(index))})"

    this = name(resolver.task_type, resolver.task_id)
    if says_port_in_use(text):
        return no_port_error(this, text.splitlines()[0], PORT_IN_USE)
    if (fix := fix_for_gpu(text)) is not None:
        return ClusterStartError(f"{this} cannot use its GPU.", received=text.partition("\n")[0], fix=fix)
    # TensorFlow names the missing tasks if it knows them: on the leader, or if the leader runs.
    named = _MISSING_TASKS.search(text)
    missing = [name(*task) for task in _TASK_NAME.findall(named[1])] if named else []
    leader = name(_leader_job(spec.jobs), 0)
    if not missing and this != leader and isinstance(error, tf.errors.OpError):
        missing = [leader]
    why = f"waited for {', '.join(missing)}" if missing else text.partition("\n")[0]
    return absence_error(this, why, timeout)


def _leader_job(jobs: Iterable[str]) -> str:
    return "chief" if "chief" in jobs else "worker"


def mpi_collectives(exchange: Exchange, start_timeout: float, heartbeat_timeout: float) -> Collectives | None:
    """Return the MPI collectives, whose ranks have the same versions; None if this is the only rank."""
    from tfdistr.collectives.mpi.world import world

    comm = world(start_timeout)
    if comm.Get_size() == 1:
        return None
    from tfdistr.collectives.mpi.collectives import MpiCollectives

    collectives = MpiCollectives(
        comm, exchange.bytes_per_pack, heartbeat_timeout, timeout=exchange.timeout_seconds
    )
    agree(collectives, versions())
    return collectives

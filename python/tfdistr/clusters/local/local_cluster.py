"""A cluster on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from tfdistr.clusters.backend import Backend, mpi_library
from tfdistr.clusters.cluster import Cluster
from tfdistr.clusters.environment import check_env, worker_defaults
from tfdistr.clusters.resources import check_cores, share_of
from tfdistr.clusters.worker_process import WorkerProcess, stop
from tfdistr.collectives.mpi.world import no_mpi
from tfdistr.errors import ArgumentError, ClusterStartError, TfdistrError
from tfdistr.fork_server.servers import warm_start
from tfdistr.network.loopback import LOOPBACK, keep_to_loopback
from tfdistr.network.ports import free_ports
from tfdistr.r.functions import environment_of_r_worker, r_worker_command
from tfdistr.rendezvous.config import ClusterConfig, tf_config
from tfdistr.rendezvous.tf_config import split_address
from tfdistr.rendezvous.token import with_token
from tfdistr.utils.arguments import argument, check_bool, check_int, check_optional_int
from tfdistr.utils.describe import number_of
from tfdistr.utils.gpus import NO_GPU, VISIBLE, gpus_of_workers, too_few_gpus, visible_gpus
from tfdistr.utils.processes import PARENT

log = logging.getLogger("tfdistr")

_HOST = "127.0.0.1"
#: On one machine no worker needs to listen on the network. Workers with MPICH would listen at the address of
#: an interface, by UCX or libfabric. The variables of the environment are for jobs on several machines.
BY_MEMORY = {"UCX_TLS": "self,sm", "FI_PROVIDER": "shm"}
# All transports of UCX and libfabric for processes of one machine.
_MEMORY = {"self", "sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"}
#: The program of a Python worker; the run directory and the index of the worker follow. "-P": a module in the
#: working directory, which another user may have put there, is not for the interpreter. The job has the paths
#: of the session's modules.
WORKER = (sys.executable, "-P", "-m", "tfdistr.jobs.worker")


@attrs.frozen(kw_only=True)
class LocalCluster(Cluster):
    """Workers on this machine, each in its own process. `local_cluster` describes the arguments."""

    workers: int = argument(check_int, "workers", default=2)
    ps: int = argument(check_int, "ps", default=0, minimum=0)
    warm: bool = argument(check_bool, "warm", default=True)
    gpus: tuple[str, ...] = ()  # CUDA_VISIBLE_DEVICES of each worker; empty if all see the same
    fewest: int | None = None  # with how few workers a job may train; None if their number is fixed

    spans_hosts: ClassVar[bool] = False
    has_servers: ClassVar[bool] = True
    where: ClassVar[str] = "of this machine"

    def __attrs_post_init__(self) -> None:
        check_cores(self.workers, self.cores_per_worker)

    def requested_backend(self, communication: str) -> Backend:
        """Check that the workers will find MPICH, or a GPU for each."""
        if communication == "mpi" and "MPICH" not in (library := mpi_library()):
            raise no_mpi(f"{library}; only MPICH starts without its launcher")
        if communication == "nccl" and (shared := self.shared_gpus()):
            raise ArgumentError(
                'communication="nccl" needs a GPU for each worker.',
                received=f"{self.workers} workers, which share GPU {', '.join(shared)}",
                fix='Pass cluster=local_cluster(gpus_per_worker=1), or strategy="multi_worker_mirrored".',
            )
        return super().requested_backend(communication)

    def with_servers(self) -> Cluster:
        """Return the processes of a chief, its workers and its parameter servers."""
        from tfdistr.clusters.local.parameter_servers import LocalServers

        return LocalServers(
            cluster=self, follow=self.follow, start_timeout=self.start_timeout,
            heartbeat_timeout=self.heartbeat_timeout,
        )  # fmt: skip

    def describe(self) -> str:
        """Say how many workers there are, and where."""
        least = "" if self.fewest is None else f"{self.fewest} to "
        servers = f"\n  and {number_of(self.ps, 'parameter server')}" if self.ps else ""
        return f"{least}{number_of(self.workers, 'worker')} on this machine{servers}"

    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> list[WorkerProcess]:
        """Start every worker once, on ports that are free now; see `Cluster.start`."""
        plan = tf_config(worker=[f"{_HOST}:{port}" for port in free_ports(self.workers)])
        environments = with_token([self.environment(index) for index in range(self.workers)])
        return launch(
            lambda index: self.start_process(index, command, run_dir, plan[index], environments[index]),
            self.workers,
        )

    def start_process(
        self,
        index: int,
        command: Sequence[str],
        run_dir: str | os.PathLike[str],
        config: ClusterConfig,
        env: Mapping[str, str],
    ) -> WorkerProcess:
        """Start one process of the cluster, with its own environment variables."""
        whole = {**os.environ, **env, PARENT: str(os.getpid()), **config.to_env()}
        loopback = keep_to_loopback(whole)
        loopback.warn([split_address(each)[1] for addresses in config.jobs.values() for each in addresses])
        if loopback.way == "preload" and index == 0:
            _warn_of_network(env)
        program = [*command, os.fspath(run_dir), str(index)]
        arguments = loopback.command(program)
        warm = warm_start(program, whole, loopback) if self.warm else None
        env = loopback.environment(whole)
        try:
            return WorkerProcess(index, arguments, env=env, run_dir=run_dir, files=loopback.files, warm=warm)
        except OSError as error:
            worker = config.task.type == "worker"
            name = f"Worker {index} of {self.workers}" if worker else f"The process of {config.task}"
            raise ClusterStartError(
                f"{name} could not be started: {error}.",
                received=shlex.join(arguments),
                fix="See what the system names: the program must exist and be executable, and the run "
                "directory be writable.",
            ) from error

    def environment(self, index: int) -> dict[str, str]:
        """The environment variables of worker ``index`` that are added to the variables of this process."""
        share = share_of(index, self.workers, self.cores_per_worker)
        own = {VISIBLE: self.gpus[index]} if self.gpus else {}
        return {**self.common_environment(), **share, **own}

    def shared_gpus(self) -> tuple[str, ...]:
        """The GPUs that several workers see."""
        seen = self.gpus or visible_gpus(self.env or {}) * self.workers
        return tuple(gpu for gpu in dict.fromkeys(seen) if gpu != NO_GPU and seen.count(gpu) > 1)

    def without(self, worker: int, min_workers: int) -> LocalCluster | None:
        """This cluster without a lost worker; None if fewer than ``min_workers`` workers would be left."""
        if self.workers - 1 < min_workers:
            return None
        gpus = tuple(gpu for place, gpu in enumerate(self.gpus) if place != worker)
        return attrs.evolve(self, workers=self.workers - 1, gpus=gpus)

    def common_environment(self) -> dict[str, str]:
        """The environment variables that all processes of the cluster have."""
        return {**BY_MEMORY, **worker_defaults(self.env, self.tuning)}

    def warm_up(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start the fork server of the workers in the background, if they start warm.

        A worker starts none: the modules that it imports may describe the cluster of their session.

        Args:
            command: The program of a worker and its arguments.
            env: Environment variables of workers of this language; the variables of the user override them.
        """
        whole = {**os.environ, **(env or {}), **self.environment(0)}
        with contextlib.suppress(TfdistrError):  # the job raises the error later
            if self.warm and PARENT not in os.environ:
                warm_start(command, whole, keep_to_loopback(whole))


def local_cluster(
    workers: int | Sequence[int] | None = None,
    *,
    ps: int = 0,
    cores_per_worker: int | None = None,
    gpus_per_worker: int | None = None,
    env: Mapping[str, str] | None = None,
    follow: bool = False,
    warm: bool = True,
    tuning: bool = True,
    start_timeout: float | None = None,
    heartbeat_timeout: float = 30.0,
) -> LocalCluster:
    """Describe a cluster of workers on this machine.

    No worker is started yet. The workers listen on ports that are chosen at their start, communicate over the
    loopback address, and end with the process that started them. Other machines reach neither the workers nor
    other servers in their processes. SECURITY.md says more, and how to change that.

    Args:
        workers: The number of workers, a whole number of at least 1. By default 2, or, with
            ``gpus_per_worker``, as many as there are GPUs for. Two numbers, such as ``(2, 4)``, are for jobs
            with ``virtual_workers``: the job starts with 4 workers, continues with at least 2 if some are
            lost, replaces them at the next checkpoint, and ends with a bitwise identical result in any case.
        ps: The number of parameter servers, for ``strategy="parameter_server"``. A process for the chief is
            then started, too.
        cores_per_worker: The number of cores of this machine for each worker, which runs as many threads. By
            default the workers share all cores that this process can use, fairly; with fewer cores than
            workers, several workers share a core.
        gpus_per_worker: The number of GPUs of each worker, which sees only its own, of those that this
            process sees (or that ``env`` makes visible). 0 hides all GPUs. By default each of several workers
            sees one GPU, in turn if there are fewer GPUs than workers, and one worker sees all.
        env: Environment variables for the workers, text to text, added to the variables of this process.
            They have TF_FORCE_GPU_ALLOW_GROWTH=true, so that each takes the GPU memory that it needs.
        follow: Whether to show the output of the workers at once, each line after "[worker 1] ". A file for
            each worker has the output in any case.
        warm: Whether the workers are forks of a fork server, a process that has imported TensorFlow and
            Keras. They then start in about 2 seconds instead of 10. This call starts the fork server in the
            background. It serves all jobs of this session. It ends with the session, after ten idle minutes,
            or by `stop_warm_workers`. If a fork is not safe (macOS, a GPU in use), workers start cold, and
            their logs say why.
        tuning: Whether to choose settings that make TensorFlow fast on this processor: its oneDNN kernels,
            huge pages, and memory that stays with the process. Environment variables that are already set,
            such as TF_ENABLE_ONEDNN_OPTS, take precedence. ``params["tuning"]`` of the result describes the
            settings.
        start_timeout: Seconds until every worker must have joined the cluster; by default 300.
        heartbeat_timeout: Seconds without a heartbeat after which a worker counts as lost: it is stopped, or
            its machine or network has failed.

    Returns:
        The cluster, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: An argument does not have this form, or this machine has too few cores or GPUs.

    Example:
        >>> local_cluster(workers=4).workers
        4
    """
    cluster = describe_local_cluster(**locals())
    cluster.warm_up(WORKER)
    return cluster


def local_cluster_of_r(*arguments: object, **options: object) -> LocalCluster:
    """Describe a cluster as `local_cluster` does, and start the fork server of R workers."""
    cluster = describe_local_cluster(*arguments, **options)
    cluster.warm_up(r_worker_command(), environment_of_r_worker())
    return cluster


def describe_local_cluster(
    workers: Any = None, *, env: Any = None, gpus_per_worker: Any = None, **options: Any
) -> LocalCluster:
    """The cluster that `local_cluster` returns, but nothing is started in the background."""
    fewest = None
    if isinstance(workers, list | tuple) and len(workers) == 2:
        fewest, workers = _check_range(workers)
    each = check_optional_int("gpus_per_worker", gpus_per_worker, minimum=0)
    there = visible_gpus(check_env(env)) if each != 0 else ()
    by_default = max(1, len(there) // each) if each else 2
    count = check_optional_int("workers", workers) or by_default
    if each and count * each > len(there):
        raise ArgumentError(
            "`gpus_per_worker` times the workers of a machine must be at most its visible GPUs.",
            received=too_few_gpus(count, each, len(there)),
            fix="Ask for fewer GPUs or workers, or leave `gpus_per_worker` out.",
        )
    gpus = gpus_of_workers(there, count, each)
    return LocalCluster(workers=count, env=env, gpus_per_worker=each, gpus=gpus, fewest=fewest, **options)


def _check_range(workers: Sequence[object]) -> tuple[int, int]:
    numbers = [check_int("workers", number) for number in workers]
    if numbers[0] > numbers[1]:
        raise ArgumentError(
            "`workers` must be one number, or the lowest and the highest number of workers, in this order.",
            received=f"workers={list(workers)}",
            fix="Pass workers=4, or workers=(2, 4).",
        )
    return numbers[0], numbers[1]


def launch(start: Callable[[int], WorkerProcess], count: int) -> list[WorkerProcess]:
    """Start ``count`` processes by ``start``, which takes an index: all of them or none."""
    processes: list[WorkerProcess] = []
    try:
        processes.extend(map(start, range(count)))
    except BaseException:
        stop(processes)
        raise
    return processes


def _warn_of_network(env: Mapping[str, str]) -> None:
    """Warn the user if ``env`` makes workers listen at network addresses, which "preload" does not close."""
    for name in BY_MEMORY:
        if not set(env[name].split(",")) <= _MEMORY:
            log.warning(
                "With %s=%s in `env` other machines may reach the workers, and disturb the job. Leave it "
                'out, or pass env={"%s": "namespace"} too.', name, env[name], LOOPBACK,
            )  # fmt: skip

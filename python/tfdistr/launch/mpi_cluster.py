"""Clusters whose workers are the ranks of one ``mpiexec``: on several hosts, or on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

import attrs

from tfdistr.launch.cluster import EqualWorkers
from tfdistr.launch.hosts import WorkersOnHosts, words_of_ssh
from tfdistr.launch.local import BY_MEMORY, LocalCluster
from tfdistr.launch.loopback import LOOPBACK, Loopback, keep_to_loopback
from tfdistr.launch.mpiexec import Mpiexec, Rank
from tfdistr.launch.ports import free_ports
from tfdistr.launch.warm.servers import Place, WarmStart, warm_start, warm_starts

log = logging.getLogger("tfdistr")

# All transports of UCX and libfabric for processes of one machine.
_MEMORY = {"self", "sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"}
# The ports for MPICH's launcher. A port that the system chooses could not be closed on an old kernel.
_PORTS = "MPIEXEC_PORT_RANGE"


@attrs.frozen
class MpiCluster(WorkersOnHosts):
    """Workers on several hosts, the ranks of one mpiexec. `mpi_cluster` describes the arguments."""

    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> list[Rank]:
        """Start every worker once; see `LocalCluster.start`."""
        environments, each, ssh = self.environments(), self.workers_per_host, words_of_ssh(self.ssh)
        starts: list[WarmStart | None] = []
        if self.warm:
            places = [Place(host, tuple(ssh)) for host in self.hosts]
            whole = {**os.environ, **environments[0]}
            starts = warm_starts(command, whole, Loopback("none"), places)
        warm = [starts[index // each] for index in range(self.workers)] if starts else []
        return Mpiexec(command, run_dir, environments, hosts=self.hosts, ssh=ssh, warm=warm).ranks


@attrs.frozen
class LocalMpi(EqualWorkers):
    """The workers of a `LocalCluster` as the ranks of one mpiexec."""

    cluster: LocalCluster

    @property
    def workers(self) -> int:
        """The number of workers."""
        return self.cluster.workers

    @property
    def follow(self) -> bool:
        """Whether to show the output of the workers."""
        return self.cluster.follow

    @property
    def start_timeout(self) -> float:
        """Seconds until every worker must have joined the cluster."""
        return self.cluster.start_timeout

    def without(self, worker: int, min_workers: int) -> LocalMpi | None:
        """See `LocalCluster.without`."""
        left = self.cluster.without(worker, min_workers)
        return None if left is None else LocalMpi(left)

    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> list[Rank]:
        """Start every worker once; see `LocalCluster.start`."""
        port = free_ports(1)[0]
        ports = {_PORTS: os.environ.get(_PORTS, f"{port}:{min(port + 100, 65535)}")}
        environments = [{**ports, **self.cluster.environment(index)} for index in range(self.workers)]
        loopback = keep_to_loopback({**os.environ, **environments[0]})
        loopback.warn([environments[0][_PORTS].partition(":")[0]])
        if loopback.way == "preload":
            _warn_of_network(environments[0])
        warm = [
            warm_start(command, {**os.environ, **env}, loopback) if self.cluster.warm else None
            for env in environments
        ]
        return Mpiexec(command, run_dir, environments, loopback=loopback, warm=warm).ranks


def _warn_of_network(env: Mapping[str, str]) -> None:
    """Warn the user if ``env`` makes workers listen at network addresses, which "preload" does not close."""
    for name in BY_MEMORY:
        if not set(env[name].split(",")) <= _MEMORY:
            log.warning(
                "With %s=%s in `env` other machines may reach the workers, and disturb the job. Leave it "
                'out, or pass env={"%s": "namespace"} too.', name, env[name], LOOPBACK,
            )  # fmt: skip


def mpi_cluster(
    hosts: Sequence[str],
    workers_per_host: int = 1,
    *,
    cores_per_worker: int | None = None,
    env: Mapping[str, str] | None = None,
    follow: bool = False,
    start_timeout: float = 300.0,
    ssh: str | None = None,
    warm: bool = True,
    tuning: bool = True,
) -> MpiCluster:
    """Describe an MPI cluster of workers on several hosts.

    This call starts nothing. `distributed_fit` runs one ``mpiexec``, which reaches the hosts by ssh. Each
    host must let this user in without a password, and have the same Python, tfdistr and MPI at the same paths
    as this machine (R workers: the same R and packages, too). Worker ``i`` runs on
    ``hosts[i // workers_per_host]``. All hosts must see the run directory under the same path; by default it
    is a new folder of the working directory. On Linux, all workers end when the process that started them
    ends, even if it is killed.

    Args:
        hosts: Names or addresses of the hosts, each once, as ssh takes them. This machine can be one of them.
        workers_per_host: The number of workers on each host, a whole number of at least 1.
        cores_per_worker: The number of cores of its host for each worker, which runs as many threads. By
            default the workers of a host share its cores fairly.
        env: Environment variables for the workers, text to text, added to the variables that ``mpiexec``
            passes on: with MPICH all variables of this process.
        follow: Whether to show the output of the workers at once, each line after "[worker 1] ".
        start_timeout: Seconds until every worker must have joined the cluster.
        ssh: The program that reaches the hosts, and its options, as in a shell: "ssh -F my_config", for
            example. By default ``ssh``.
        warm: Whether the workers are forks of a fork server; see `local_cluster`. The first job starts a fork
            server on each host, by ssh.
        tuning: Whether to choose settings that make TensorFlow fast on its processor; see `local_cluster`.

    Returns:
        The cluster, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: If an argument does not have this form.

    Example:
        >>> mpi_cluster(["a", "b"], workers_per_host=2).workers
        4
    """
    return MpiCluster(
        hosts, workers_per_host, env, follow, start_timeout, ssh, cores_per_worker, warm, tuning
    )

"""Clusters whose workers are the ranks of one ``mpiexec``: on several hosts, or on this machine."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs

from tfdistr._utils.arguments import argument, flag, optional_whole, seconds, whole
from tfdistr.errors import ArgumentError
from tfdistr.launch.cluster import EqualWorkers
from tfdistr.launch.cores import share_of
from tfdistr.launch.local import BY_MEMORY, LocalCluster, check_env, worker_defaults
from tfdistr.launch.loopback import LOOPBACK, Loopback, keep_to_loopback
from tfdistr.launch.mpiexec import Mpiexec, Rank
from tfdistr.launch.ports import free_ports
from tfdistr.launch.warm.servers import Place, WarmStart, warm_start, warm_starts
from tfdistr.schemas.messages import show

log = logging.getLogger("tfdistr")

# All transports of UCX and libfabric for processes of one machine.
_MEMORY = {"self", "sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"}
# The ports for MPICH's launcher. A port that the system chooses could not be closed on an old kernel.
_PORTS = "MPIEXEC_PORT_RANGE"


def check_hosts(hosts: Any) -> tuple[str, ...]:
    """Check the form of ``hosts``: ssh must be able to take each as it is written."""
    rule = None
    if isinstance(hosts, str) or not isinstance(hosts, Sequence) or not hosts:
        rule = "`hosts` must be a list of at least one host."
    elif any(not isinstance(host, str) for host in hosts):
        rule = "`hosts` must be names or addresses, as text."
    elif any(not host or host.startswith("-") or any(c in " \t\n," for c in host) for host in hosts):
        rule = 'Each host must be a name or an address, without spaces and commas and no "-" before it.'
    elif len(set(hosts)) < len(hosts):
        rule = "`hosts` must name each host once; `workers_per_host` says how many workers run there."
    if rule:
        raise ArgumentError(
            rule, received=show(hosts), fix='Pass hosts=["a", "b"], for example.'
        )
    return tuple(hosts)


def _words(ssh: Any) -> list[str]:
    """The words of a command."""
    try:
        words = [] if ssh is None else shlex.split(ssh)
        valid = ssh is None or bool(words)
    except (ValueError, AttributeError, TypeError):
        words, valid = [], False
    if not valid:
        raise ArgumentError(
            "`ssh` must be a program and its options, written as for a shell.",
            received=show(ssh),
            fix='Pass ssh="ssh -p 2222", for example, or leave it out.',
        )
    return words


def _check_ssh(ssh: Any) -> Any:
    _words(ssh)
    return ssh


@attrs.frozen
class MpiCluster(EqualWorkers):
    """Workers on several hosts, the ranks of one mpiexec. `mpi_cluster` describes the arguments."""

    hosts: Sequence[str] = attrs.field(converter=check_hosts)
    workers_per_host: int = argument(whole, "workers_per_host", default=1)
    env: Mapping[str, str] | None = attrs.field(  # may hold secrets
        default=None, converter=check_env, hash=False, repr=False
    )
    follow: bool = argument(flag, "follow", default=False)
    start_timeout: float = argument(seconds, "start_timeout", default=300.0, example="300.0")
    ssh: str | None = attrs.field(default=None, converter=_check_ssh)
    cores_per_worker: int | None = argument(optional_whole, "cores_per_worker", default=None)
    warm: bool = argument(flag, "warm", default=True)

    #: It has no parameter servers.
    ps: ClassVar[int] = 0

    @property
    def workers(self) -> int:
        """The number of workers on all hosts together."""
        return len(self.hosts) * self.workers_per_host

    def without(self, worker: int, min_workers: int) -> MpiCluster | None:
        """This cluster without the host of a worker; None if fewer than ``min_workers`` would be left."""
        lost = worker // self.workers_per_host
        hosts = [host for place, host in enumerate(self.hosts) if place != lost]
        enough = hosts and len(hosts) * self.workers_per_host >= min_workers
        return attrs.evolve(self, hosts=hosts) if enough else None

    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> list[Rank]:
        """Start every worker once; see `LocalCluster.start`."""
        each = self.workers_per_host
        shares = [share_of(index % each, each, self.cores_per_worker) for index in range(self.workers)]
        environments = [{**worker_defaults(), **share, **(self.env or {})} for share in shares]
        ssh = _words(self.ssh)
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

    Returns:
        The cluster, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: If an argument does not have this form.

    Example:
        >>> mpi_cluster(["a", "b"], workers_per_host=2).workers
        4
    """
    return MpiCluster(hosts, workers_per_host, env, follow, start_timeout, ssh, cores_per_worker, warm)

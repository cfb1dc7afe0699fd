"""Clusters of workers on several hosts, each started by ssh."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import attrs

from tfdistr.clusters.backend import Backend
from tfdistr.clusters.cluster import Cluster, workers_of_each_host
from tfdistr.clusters.environment import of_this_process, worker_defaults
from tfdistr.clusters.guard import HEARTBEAT, PLACE
from tfdistr.clusters.remote_worker import RemoteWorker
from tfdistr.clusters.ssh.host_facts import versions_here
from tfdistr.clusters.ssh.survey import (
    CONNECT,
    HostAnswer,
    ask_hosts,
    check_hosts,
    marker_in,
    name_of_host,
    r_request,
    refuse_hosts,
    ssh_command,
    words_of_ssh,
)
from tfdistr.clusters.ssh.workers import HOST as LOOPBACK_ADDRESS
from tfdistr.clusters.ssh.workers import Remote, Ssh, Tunnels
from tfdistr.clusters.worker_process import stop
from tfdistr.errors import ArgumentError, ClusterConfigError, ClusterStartError
from tfdistr.fork_server.servers import Host, WarmStart, warm_starts
from tfdistr.network.loopback import Loopback
from tfdistr.rendezvous.config import tf_config
from tfdistr.rendezvous.tf_config import join_address, split_address
from tfdistr.rendezvous.token import with_token
from tfdistr.schemas import show
from tfdistr.utils.arguments import argument, check_bool, check_int
from tfdistr.utils.describe import number_of
from tfdistr.utils.gpus import VISIBLE, gpus_of_workers, too_few_gpus

# sshd drops connections at random if more than 10 of them have not logged in yet.
_AT_ONCE = 8
_TRIES = 5  # surveys, each with other ports, until tunnels can be made
_ALIVE = 15  # seconds between two looks of ssh at its connection


def _ssh_or_none(ssh: str | None) -> str | None:
    words_of_ssh(ssh)  # checks it
    return ssh


@attrs.frozen(kw_only=True)
class SshCluster(Cluster):
    """Workers on several hosts, each started by ssh. `ssh_cluster` describes the arguments."""

    hosts: Sequence[str] = attrs.field(converter=check_hosts)
    workers_per_host: int = argument(check_int, "workers_per_host", default=1)
    ssh: str | None = attrs.field(default=None, converter=_ssh_or_none)
    warm: bool = argument(check_bool, "warm", default=True)
    tunnels: bool = argument(check_bool, "tunnels", default=False)

    def __attrs_post_init__(self) -> None:
        for host in self.hosts:
            try:
                split_address(_address(host, 1))
            except ClusterConfigError:
                raise ArgumentError(
                    "Each host of ssh_cluster() must be a name or an address by which the hosts reach each "
                    'other; only "user@" may be before it.',
                    received=show(host),
                    fix='Pass hosts=["a", "b"], for example, and put a port into `ssh`: ssh="ssh -p 2222".',
                ) from None

    @property
    def workers(self) -> int:
        """The number of workers on all hosts together."""
        return len(self.hosts) * self.workers_per_host

    def describe(self) -> str:
        """Describe the number of workers and their hosts."""
        each = f"{self.workers_per_host} on each of {', '.join(self.hosts)}"
        return f"{number_of(self.workers, 'worker')} by ssh: {each}"

    def without(self, worker: int, min_workers: int) -> Self | None:
        """Return this cluster without a worker's host; None if fewer than ``min_workers`` would be left."""
        lost = worker // self.workers_per_host
        hosts = [host for place, host in enumerate(self.hosts) if place != lost]
        enough = hosts and len(hosts) * self.workers_per_host >= min_workers
        return attrs.evolve(self, hosts=hosts) if enough else None

    def environments(self) -> list[dict[str, str]]:
        """Return the environment variables of each worker that are added to the variables of this process."""
        shares = self.shares([self.workers_per_host] * len(self.hosts))
        return with_token([{**share, **worker_defaults(self.env, self.tuning)} for share in shares])

    def backend(self, communication: str) -> Backend:
        """Choose what carries the gradients; tunnels carry the ring only."""
        if self.tunnels and communication in ("mpi", "nccl"):
            raise ArgumentError(
                f'communication="{communication}" needs connections from host to host, which ssh tunnels do '
                "not carry.",
                received="ssh_cluster() with tunnels=True",
                fix='Pass strategy=multi_worker_mirrored(communication="ring"), or '
                "tunnels=False if the hosts can connect to each other.",
            )
        if self.tunnels and communication == "auto":
            return Backend("ring", self, "ssh tunnels carry neither MPI nor NCCL")
        return super().backend(communication)

    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> list[RemoteWorker]:
        """Start every worker once; see `Cluster.start`."""
        environments = [{**of_this_process(), **own} for own in self.environments()]
        answers, tunnels = self._survey(command, run_dir, environments[0])
        each, gpus = self.workers_per_host, self._gpus(answers)
        addresses = [_address(e.host, port) for e in answers for port in e.facts["ports"][:each]]
        if tunnels is not None:
            addresses = [f"{LOOPBACK_ADDRESS}:{port}" for port in tunnels.ports]
        plan = tf_config(worker=addresses)
        warm: list[WarmStart | None] = [None] * len(self.hosts)
        if self.warm and tunnels is None:  # a fork server does not keep its forks to the loopback interface
            places = [Host(host, tuple(words_of_ssh(self.ssh))) for host in self.hosts]
            warm = warm_starts(command, environments[0], Loopback("none"), places)
        # Seconds without a heartbeat from this process after which a worker ends.
        silence = max(self.heartbeat_timeout, 3 * HEARTBEAT)
        remotes = []
        for index in range(self.workers):
            host, start = answers[index // each], warm[index // each]
            words = [os.fspath(run_dir), str(index)]
            spec = {
                "index": index, "host": host.host, "folder": os.getcwd(), "command": [*command, *words],
                "env": {**environments[index], **plan[index].to_env(), **gpus[index]}, "silence": silence,
                "warm": start and {"server": start.server, "argv": [*start.argv, *words]},
                "loopback": host.facts["core"] if tunnels else None,
            }  # fmt: skip
            options = tunnels.options(index) if tunnels else []
            remotes.append(Remote(host.host, self._command(host, silence, options), spec))
        return self._start_all(remotes, run_dir)

    def _command(self, host: HostAnswer, silence: float, options: Sequence[str]) -> list[str]:
        """The command that starts the guard of a worker on a host."""
        guard = str(Path(host.facts["core"], PLACE))
        # If the network is cut and this process is gone, only this ends ssh.
        alive = [f"-oConnectTimeout={int(CONNECT)}", f"-oServerAliveInterval={_ALIVE}",
                 f"-oServerAliveCountMax={math.ceil(silence / _ALIVE) + 1}"]  # fmt: skip
        command = [sys.executable, "-I", "-S", guard, "host"]
        return ssh_command(words_of_ssh(self.ssh), host.host, command, *alive, *options)

    def _survey(
        self, command: Sequence[str], run_dir: str | os.PathLike[str], env: Mapping[str, str]
    ) -> tuple[list[HostAnswer], Tunnels | None]:
        """Ask all hosts what they have, and refuse hosts on which workers cannot train together."""
        # The flags of Rscript, and not the program of a worker.
        rscript = [w for place, w in enumerate(command) if not place or w.startswith("--")]
        r = r_request(rscript, env) if command[0] != sys.executable else None
        here, each = versions_here(r), self.workers_per_host
        for _ in range(_TRIES):
            tunnels = Tunnels.new(self.workers, each) if self.tunnels else None
            with marker_in(run_dir) as marker:
                answers = ask_hosts(
                    self.hosts, ssh=words_of_ssh(self.ssh), timeout=min(self.start_timeout, 3 * CONNECT),
                    ports=each, wanted=tunnels.ports if tunnels else (), names=() if tunnels else None,
                    env=env, marker=marker, visible=env.get(VISIBLE), r=r,
                )  # fmt: skip
            found = refuse_hosts(answers, here, run_dir=os.fspath(run_dir), workers_per_host=each)
            if found is not None:
                raise found
            scarce = [place for place, answer in enumerate(answers) if self._lacks_ports(answer)]
            if not scarce:
                return answers, tunnels
            if not self.tunnels:
                break
        error = ClusterStartError(
            "Each host must have a free port for each worker.",
            received=f"too few on {answers[scarce[0]].host}",
            fix="Start fewer workers there, or end programs that listen on many ports.",
        )
        error.worker, error.host = scarce[0] * each, answers[scarce[0]].host
        raise error

    def _gpus(self, answers: Sequence[HostAnswer]) -> list[dict[str, str]]:
        """The variable with the GPUs of each worker."""
        count, each = self.workers_per_host, self.gpus_per_worker
        for place, answer in enumerate(answers):
            there = len(answer.facts["gpus"])
            if each and count * each > there:
                error = ClusterStartError(
                    "`gpus_per_worker` times the workers of a host must be at most its visible GPUs.",
                    received=f"{answer.host}: {too_few_gpus(count, each, there)}",
                    fix="Ask for fewer GPUs or workers, or leave the host out.",
                )
                error.worker, error.host = place * count, answer.host
                raise error
        shares = [gpus_of_workers(answer.facts["gpus"], count, each) for answer in answers]
        return [{VISIBLE: own[local]} if own else {} for own in shares for local in range(count)]

    def _lacks_ports(self, answer: HostAnswer) -> bool:
        if self.tunnels:  # the ports must be free on all hosts
            return bool(answer.facts["busy"])
        return len(answer.facts["ports"]) < self.workers_per_host

    def _start_all(self, remotes: Sequence[Remote], run_dir: str | os.PathLike[str]) -> list[RemoteWorker]:
        """Start all workers, or none."""
        started: dict[int, RemoteWorker] = {}
        try:
            for first in range(0, self.workers_per_host, _AT_ONCE):
                for index, remote in enumerate(remotes):
                    if first <= index % self.workers_per_host < first + _AT_ONCE:
                        started[index] = Ssh(index, remote, run_dir).worker
                if first + _AT_ONCE < self.workers_per_host:
                    _wait_for_answers(list(started.values()))
        except BaseException as error:
            stop(list(started.values()))
            if isinstance(error, OSError):
                raise ClusterStartError(
                    "ssh must be a program that this machine can run.",
                    received=str(error),
                    fix="Install ssh, or pass `ssh`, its path.",
                ) from error
            raise
        return [started[index] for index in range(len(remotes))]


def _wait_for_answers(workers: Sequence[RemoteWorker]) -> None:
    until = time.monotonic() + CONNECT
    while time.monotonic() < until:
        for worker in workers:
            worker.poll()
        if all(worker.answered for worker in workers):
            break
        time.sleep(0.02)


def _address(host: str, port: int) -> str:
    return join_address(name_of_host(host), port)


def ssh_cluster(
    hosts: Sequence[str],
    *,
    workers: int | None = None,
    workers_per_host: int | None = None,
    ssh: str | None = None,
    tunnels: bool = False,
    cores_per_worker: int | None = None,
    gpus_per_worker: int | None = None,
    env: Mapping[str, str] | None = None,
    follow: bool = False,
    warm: bool = True,
    tuning: bool = True,
    start_timeout: float | None = None,
    heartbeat_timeout: float = 30.0,
) -> SshCluster:
    """Describe a cluster of workers on several hosts that are reached by ssh.

    This call starts nothing. `distributed_fit` starts each worker by its own ssh. The workers connect to each
    other, over MPI if all hosts have it. Each host must let this user in without a password, and have the
    same Python and the same versions of the packages as this machine (R workers: the same R and packages,
    too). Before a job starts, all hosts are asked for their versions. Worker ``i`` runs on
    ``hosts[i // workers_per_host]``. All hosts must see the run directory under the same path; by default it
    is a new folder of the working directory. All workers end when the process that started them ends, even if
    it is killed, and when its network is cut.

    Args:
        hosts: Names or addresses of the hosts, each once, by which ssh reaches them and by which they reach
            each other. "user@" may be before them. This machine can be one of them.
        workers: The number of workers on all hosts together, the same number on each.
        workers_per_host: The number of workers on each host, instead of ``workers``; by default 1.
        ssh: The program that reaches the hosts, and its options, as in a shell: "ssh -F my_config", for
            example. By default ``ssh``.
        tunnels: Whether the workers connect to each other through ssh, for hosts that only this machine
            reaches. All they send is then encrypted and goes through this machine, which is slower. The
            workers start cold, and listen on the loopback interface of their host only, if it has a C
            compiler.
        cores_per_worker: The number of cores of its host for each worker, which runs as many threads. By
            default the workers of a host share its cores fairly.
        gpus_per_worker: The number of GPUs of its host for each worker, which sees only its own. 0 hides all
            GPUs. By default each of several workers of a host sees one, and one worker sees all.
        env: Environment variables for the workers, text to text, added to the variables of this process. The
            variables of a login, such as HOME, are those of the host. They travel through ssh, and are in no
            file and no command line.
        follow: Whether to show the output of the workers at once, each line after "[worker 1] ".
        warm: Whether the workers are forks of a fork server; see `local_cluster`. The first job starts a fork
            server on each host, by ssh.
        tuning: Whether to choose settings that make TensorFlow fast on its processor; see `local_cluster`.
        start_timeout: Seconds until every worker must have joined the cluster; by default 300.
        heartbeat_timeout: Seconds without a heartbeat after which a worker counts as lost; see
            `local_cluster`.

    Returns:
        The cluster, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: An argument does not have this form, or ``workers`` and ``workers_per_host`` contradict
            each other.

    Example:
        >>> ssh_cluster(["a", "b"], workers_per_host=2).workers
        4
    """
    given = dict(locals())
    count = len(check_hosts(hosts))
    given["workers_per_host"] = workers_of_each_host(given.pop("workers"), workers_per_host, count)
    return SshCluster(**given)

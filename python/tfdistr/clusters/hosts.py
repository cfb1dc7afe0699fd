"""The base of clusters on several hosts: host names, the ssh program, and the shares of workers."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from typing import Any, Self

import attrs

from tfdistr.clusters.cluster import EngineCluster, number_of
from tfdistr.clusters.environment import worker_defaults
from tfdistr.errors import ArgumentError, ClusterStartError
from tfdistr.rendezvous.token import with_token
from tfdistr.schemas import show
from tfdistr.utils.arguments import argument, check_bool, check_int

# Variables that a login or another job's launcher sets: a host has its own, or none.
_NOT_FOR_HOSTS = re.compile(
    r"HOME|USER|LOGNAME|SHELL|MAIL|HOST|HOSTNAME|PWD|OLDPWD|SHLVL|_|TERM|TMPDIR|TMP|TEMP|DISPLAY|XAUTHORITY"
    r"|WAYLAND_DISPLAY|(XDG|DBUS|SSH|GPG|SYSTEMD|PMI|PMIX|OMPI|PRTE|HYDI)_.*|MPI_LOCAL.*"
    r"|TF_CONFIG|TFDISTR_PARENT_PID|R_SESSION_TMPDIR"
)


def check_hosts(hosts: Any) -> tuple[str, ...]:
    """Check the form of ``hosts``: each must be a valid argument of ssh."""
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
        raise ArgumentError(rule, received=show(hosts), fix='Pass hosts=["a", "b"], for example.')
    return tuple(hosts)


def name_of_host(host: str) -> str:
    """Return the name or the address of a host, without the user that ssh may need before it."""
    return host.rpartition("@")[2]


def of_this_process() -> dict[str, str]:
    """Return the variables that workers on other hosts get from this process."""
    return {name: value for name, value in os.environ.items() if not _NOT_FOR_HOSTS.fullmatch(name)}


def unseen_run_dir(run_dir: str, host: str, worker: int) -> ClusterStartError:
    """Return the error if a host does not see the run directory."""
    return ClusterStartError(
        "The run directory is not visible on every host under the same path.",
        received=f"{run_dir}, which does not exist on {host} (worker {worker})",
        fix="Pass `run_dir`, a folder of a file system that the hosts share.",
    )


def not_started(worker: int, host: str, why: str) -> ClusterStartError:
    """Return the error if a host cannot start the program of a worker."""
    return ClusterStartError(
        f"Cannot start worker {worker} on {host}: {why}.",
        fix="Check that the program exists and is executable, and that the run directory is writable.",
    )


def words_of_ssh(ssh: Any) -> list[str]:
    """Return the words of the command ``ssh``; none if it is None.

    Raises:
        ArgumentError: It is no command.
    """
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
    words_of_ssh(ssh)
    return ssh


@attrs.frozen(kw_only=True)
class WorkersOnHosts(EngineCluster):
    """The base of clusters with the same number of workers on each of several hosts."""

    hosts: Sequence[str] = attrs.field(converter=check_hosts)
    workers_per_host: int = argument(check_int, "workers_per_host", default=1)
    ssh: str | None = attrs.field(default=None, converter=_check_ssh)
    warm: bool = argument(check_bool, "warm", default=True)

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

"""The base of all clusters: what a job asks of the place where its workers run."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import attrs

from tfdistr.clusters.backend import Backend
from tfdistr.clusters.environment import check_env
from tfdistr.clusters.resources import share_of
from tfdistr.clusters.worker_process import Worker
from tfdistr.errors import ArgumentError
from tfdistr.rendezvous.config import Task
from tfdistr.utils.arguments import (
    argument,
    check_bool,
    check_int,
    check_optional_int,
    check_optional_seconds,
    check_seconds,
)
from tfdistr.utils.describe import number_of

if TYPE_CHECKING:
    from typing import Self

#: Seconds that workers have to join their cluster once they have a host.
TO_JOIN = 300.0


@dataclass(frozen=True)
class ProcessRole:
    """The role of a process: its name in errors, whether it can be replaced, whether it leads."""

    title: str
    task: str
    replaceable: bool = False
    leads: bool = False


@attrs.frozen(kw_only=True)
class Cluster(ABC):
    """A cluster, which starts the processes of a job, with the arguments that all kinds of clusters have.

    Each kind has a subclass, with `workers`, `describe`, `start` and `without`. The other members have
    defaults, for workers that all need each other and may run on other hosts. `local_cluster` describes the
    arguments.
    """

    cores_per_worker: int | None = argument(check_optional_int, "cores_per_worker", default=None)
    gpus_per_worker: int | None = argument(check_optional_int, "gpus_per_worker", default=None, minimum=0)
    env: Mapping[str, str] | None = attrs.field(  # may hold secrets
        default=None, converter=check_env, hash=False, repr=False
    )
    follow: bool = argument(check_bool, "follow", default=False)
    tuning: bool = argument(check_bool, "tuning", default=True)
    _start_timeout: float | None = argument(check_optional_seconds, "start_timeout", default=None)
    heartbeat_timeout: float = argument(check_seconds, "heartbeat_timeout", default=30.0, example="30.0")

    #: Whether workers may run on other hosts. All hosts must then see the run directory.
    spans_hosts: ClassVar[bool] = True
    #: Whether it can start a chief with servers; see `with_servers`.
    has_servers: ClassVar[bool] = False
    #: Where its workers run, in words.
    where: ClassVar[str] = "of the hosts"

    def __str__(self) -> str:
        """The cluster in words. Of environment variables, it has the names only."""
        return "\n".join([self.describe(), *(f"  with {name}" for name in self.env or ())])

    @abstractmethod
    def describe(self) -> str:
        """Say how many workers there are, and where."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """The number of its workers."""

    @property
    def fewest(self) -> int | None:
        """With how few workers a job may train; None if their number is fixed."""
        return None

    @property
    def ps(self) -> int:
        """The number of its parameter servers."""
        return 0

    @property
    def start_timeout(self) -> float:
        """Seconds until every worker must have joined the cluster, once it has a host."""
        return TO_JOIN if self._start_timeout is None else self._start_timeout

    @property
    def tasks(self) -> Sequence[Task]:
        """The task of each process, if the tasks are different."""
        return ()

    @property
    def roles(self) -> Sequence[ProcessRole]:
        """The role of each process: workers that all need each other."""
        return [ProcessRole(f"Worker {i} of {self.workers}", f"worker {i}") for i in range(self.workers)]

    def check(self) -> None:
        """Check that what starts the workers is here."""
        return

    def backend(self, communication: str) -> Backend:
        """Choose what carries the gradients, as far as it can be chosen before the workers meet."""
        self.check()
        if self.workers == 1 and communication in ("auto", "mpi"):
            return Backend("auto", self, "one worker has none to talk to")
        if communication == "auto":
            return Backend("auto", self, "they find out what they have when they meet")
        return self.requested_backend(communication)

    def requested_backend(self, communication: str) -> Backend:
        """Check the ``communication`` that the user asked for; raises what `backend` raises."""
        return Backend(communication, self, "the caller asked for it")

    def for_job(self, env: Mapping[str, str]) -> Self:
        """Return this cluster with the environment variables of a job; those of the user take precedence."""
        return attrs.evolve(self, env={**env, **(self.env or {})})

    @abstractmethod
    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> Sequence[Worker]:
        """Start every process once.

        Args:
            command: The program of a worker and its arguments; ``run_dir`` and the index of the worker are
                added.

        Returns:
            The workers in the order of their indices; the caller has to `stop` them.
        """

    def start_again(self, index: int, run_dir: Path) -> Worker:
        """Start a process whose role says that it can be replaced."""
        raise NotImplementedError

    @abstractmethod
    def without(self, worker: int, min_workers: int) -> Cluster | None:
        """Return this cluster without a worker, or its host; None if fewer than ``min_workers`` are left."""

    def with_servers(self) -> Cluster:
        """Return the processes of a chief, its workers and its parameter servers."""
        raise NotImplementedError

    def shares(self, counts: Sequence[int], *, by_slurm: bool = False) -> list[dict[str, str]]:
        """Return the variable with the cores of each worker, for these numbers of workers on each host."""
        return [
            share_of(local, count, self.cores_per_worker, by_slurm=by_slurm)
            for count in counts
            for local in range(count)
        ]


def workers_of_each_host(workers: object, workers_per_host: object, hosts: int, what: str = "host") -> int:
    """Return the number of workers on each host, from that of all workers or of those on a host."""
    each = check_optional_int("workers_per_host", workers_per_host)
    if workers is None:
        return each or 1
    total = check_int("workers", workers)
    if total % hosts or each not in (None, total // hosts):
        times = "a multiple of" if each is None else "`workers_per_host` times"
        given = "" if each is None else f", workers_per_host={each}"
        raise ArgumentError(
            f"`workers` must be {times} the number of {what}s.",
            received=f"workers={total}{given}, and {number_of(hosts, what)}",
            fix=f"Pass workers={hosts * (each or max(1, total // hosts))}, or leave it out.",
        )
    return total // hosts

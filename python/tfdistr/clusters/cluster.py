"""The interface of a cluster for the launcher."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tfdistr.clusters.roles import Role, equal_workers
from tfdistr.clusters.worker_process import Worker
from tfdistr.rendezvous.config import Task


class Cluster(Protocol):
    """A cluster, which starts the processes of a job.

    Attributes:
        workers: The number of its processes.
        follow: Whether to show the output of the processes.
        start_timeout: Seconds until each process must be ready.
        tasks: The task of each process, if the tasks are different.
        roles: The role of each process.
    """

    @property
    def workers(self) -> int: ...
    @property
    def follow(self) -> bool: ...
    @property
    def start_timeout(self) -> float: ...
    @property
    def tasks(self) -> Sequence[Task]: ...
    @property
    def roles(self) -> Sequence[Role]: ...

    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> Sequence[Worker]:
        """Start every process once; see `LocalCluster.start`."""

    def start_again(self, index: int, run_dir: Path) -> Worker:
        """Start a process whose role says that it can be replaced."""

    def without(self, worker: int, min_workers: int) -> Cluster | None:
        """This cluster without a lost worker; on other hosts, without the host of that worker.

        Args:
            worker: The index of the worker.
            min_workers: The least number of workers that must be left.

        Returns:
            The cluster, or None if too few workers would be left.
        """


class EqualWorkers:
    """The base of clusters whose processes are workers that all need each other."""

    tasks: Sequence[Task] = ()

    @property
    def workers(self) -> int:
        """The number of the workers."""
        raise NotImplementedError

    @property
    def roles(self) -> Sequence[Role]:
        """The roles of the workers, which are equal."""
        return equal_workers(self.workers)

    def start_again(self, index: int, run_dir: Path) -> Worker:
        """Not possible: no worker can be replaced alone."""
        raise NotImplementedError

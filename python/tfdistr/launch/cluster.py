"""What the launcher asks of a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tfdistr.cluster.config import Task
from tfdistr.launch.process import Worker
from tfdistr.launch.roles import Role, equal_workers


class Cluster(Protocol):
    """What can start the processes of a job.

    Attributes:
        workers: The number of its processes.
        follow: Whether to show what they print.
        start_timeout: Seconds until each must be ready.
        tasks: The task of each process, where they have different ones.
        roles: What each process is there for.
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
        """A cluster like this one without a worker that was lost; on other hosts, without its host.

        Args:
            worker: The index of the worker.
            min_workers: How many must be left.

        Returns:
            The cluster, or None if too few would be left.
        """


class EqualWorkers:
    """What clusters have in common whose processes are workers that all need each other."""

    tasks: Sequence[Task] = ()

    @property
    def workers(self) -> int:
        """The number of the workers."""
        raise NotImplementedError

    @property
    def roles(self) -> Sequence[Role]:
        """All have the same."""
        return equal_workers(self.workers)

    def start_again(self, index: int, run_dir: Path) -> Worker:
        """None can be replaced alone."""
        raise NotImplementedError

"""A small cluster, as an example: workers that are plain subprocesses of this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import attrs

from tfdistr.clusters.cluster import Cluster
from tfdistr.clusters.environment import worker_defaults
from tfdistr.clusters.worker_process import WorkerProcess, stop
from tfdistr.network.ports import free_ports
from tfdistr.rendezvous.config import tf_config
from tfdistr.rendezvous.token import with_token
from tfdistr.utils.arguments import argument, check_int
from tfdistr.utils.processes import PARENT


@attrs.frozen(kw_only=True)
class SubprocessCluster(Cluster):
    """Workers of this machine. `Cluster` has the arguments that all clusters share."""

    workers: int = argument(check_int, "workers", default=2)

    spans_hosts: ClassVar[bool] = False
    where: ClassVar[str] = "of this machine"

    def describe(self) -> str:
        """Say how many workers there are, and where."""
        return f"{self.workers} subprocesses of this process"

    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> list[WorkerProcess]:
        """Start every worker, or none."""
        plan = tf_config(worker=[f"127.0.0.1:{port}" for port in free_ports(self.workers)])
        common = {**os.environ, **worker_defaults(self.env, self.tuning), PARENT: str(os.getpid())}
        environments = with_token([{**common, **share} for share in self.shares([self.workers])])
        started: list[WorkerProcess] = []
        try:
            for index, env in enumerate(environments):
                words = [*command, os.fspath(run_dir), str(index)]
                whole_env = {**env, **plan[index].to_env()}
                started.append(WorkerProcess(index, words, env=whole_env, run_dir=run_dir))
        except BaseException:
            stop(started)
            raise
        return started

    def without(self, worker: int, min_workers: int) -> SubprocessCluster | None:
        """Leave one worker out."""
        return attrs.evolve(self, workers=self.workers - 1) if self.workers > min_workers else None


def subprocess_cluster(workers: int = 2, **options: Any) -> SubprocessCluster:
    """Describe a cluster of subprocesses; the options are the fields of the class."""
    return SubprocessCluster(workers=workers, **options)

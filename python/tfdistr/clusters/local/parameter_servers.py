"""The processes of a cluster with parameter servers, or of a chief and its workers, on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import attrs

from tfdistr.clusters.cluster import Cluster, ProcessRole
from tfdistr.clusters.local.local_cluster import LocalCluster, launch
from tfdistr.clusters.worker_process import WorkerProcess
from tfdistr.network.ports import free_ports
from tfdistr.rendezvous.config import Task, tf_config
from tfdistr.utils.gpus import NO_GPU, VISIBLE, visible_gpus

_HOST = "127.0.0.1"
_SERVER = (sys.executable, "-P", "-m", "tfdistr.parameter_servers.server_process")


@attrs.frozen(kw_only=True)
class LocalServers(Cluster):
    """The workers, the parameter servers and the chief of a `LocalCluster`, with indices in this order."""

    cluster: LocalCluster
    _starts: list[Callable[..., WorkerProcess]] = attrs.field(factory=list, init=False, eq=False)

    def describe(self) -> str:
        """Describe the cluster of which these are the processes."""
        return self.cluster.describe()

    @property
    def workers(self) -> int:
        """The number of processes."""
        return len(self.tasks)

    @property
    def tasks(self) -> list[Task]:
        """The task of each process."""
        counts = {"worker": self.cluster.workers, "ps": self.cluster.ps, "chief": 1}
        return [Task(job, index) for job, count in counts.items() for index in range(count)]

    @property
    def roles(self) -> list[ProcessRole]:
        """The role of each process."""
        return [self._role(task) for task in self.tasks]

    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> list[WorkerProcess]:
        """Start every process once; ``command`` is for the chief. See `Cluster.start`."""
        of_r = command[0] != sys.executable
        jobs: dict[str, list[str]] = {}
        for task, port in zip(self.tasks, free_ports(len(self.tasks)), strict=True):
            jobs.setdefault(task.type, []).append(f"{_HOST}:{port}")
        self._starts[:] = [
            partial(
                self.cluster.start_process, index, command if task.type == "chief" else _SERVER,
                config=tf_config(**jobs, type=task.type, index=task.index), env=self._environment(task, of_r),
            )
            for index, task in enumerate(self.tasks)
        ]  # fmt: skip
        return launch(lambda index: self._starts[index](run_dir=run_dir), len(self.tasks))

    def start_again(self, index: int, run_dir: Path) -> WorkerProcess:
        """Restart the process of a server, at its address."""
        return self._starts[index](run_dir=run_dir)

    def without(self, worker: int, min_workers: int) -> None:
        """Return None: a job with servers cannot continue with fewer workers."""

    def _environment(self, task: Task, of_r: bool) -> dict[str, str]:
        if task.type == "worker":
            env = self.cluster.environment(task.index)
        else:  # the others compute little, and nothing on a GPU
            env = self.cluster.common_environment()
            env |= {VISIBLE: NO_GPU} if visible_gpus(env) else {}
        if task.type != "chief" and of_r:  # Python does not find the R package's tfdistr
            users = env.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
            own = str(Path(__file__).parents[3])
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [own, users]))
        return env

    def _role(self, task: Task) -> ProcessRole:
        if task.type == "worker":
            title = f"Worker {task.index} of {self.cluster.workers}"
            # Without parameter servers the worker holds a part of the model.
            return ProcessRole(title, str(task), replaceable=self.cluster.ps > 0)
        if task.type == "ps":
            return ProcessRole(f"The parameter server ps {task.index} of {self.cluster.ps}", str(task))
        return ProcessRole("The chief", str(task), leads=True)

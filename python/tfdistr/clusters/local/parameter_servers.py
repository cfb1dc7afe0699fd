"""The processes of a cluster with parameter servers, or of a chief and its workers, on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tfdistr.clusters.cluster import Cluster, ProcessRole
from tfdistr.clusters.local.local_cluster import LocalCluster, launch
from tfdistr.clusters.worker_process import WorkerProcess
from tfdistr.network.ports import free_ports
from tfdistr.rendezvous.config import ClusterConfig, Task, tf_config
from tfdistr.utils.gpus import NO_GPU, VISIBLE, visible_gpus

_HOST = "127.0.0.1"
_SERVER = (sys.executable, "-P", "-m", "tfdistr.parameter_servers.server_process")


class LocalServers(Cluster):
    """The workers, the parameter servers and the chief of a `LocalCluster`, with indices in this order."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        counts = {"worker": cluster.workers, "ps": cluster.ps, "chief": 1}
        self._tasks = [Task(job, index) for job, count in counts.items() for index in range(count)]
        self._configs: list[ClusterConfig] = []
        self._of_r = False

    @property
    def workers(self) -> int:
        """The number of processes."""
        return len(self._tasks)

    @property
    def tasks(self) -> list[Task]:
        """The task of each process."""
        return self._tasks

    @property
    def follow(self) -> bool:
        """Return whether to show the output of the processes."""
        return self._cluster.follow

    @property
    def start_timeout(self) -> float:
        """Seconds until every process must be ready."""
        return self._cluster.start_timeout

    @property
    def heartbeat_timeout(self) -> float:
        """Seconds without a heartbeat after which a process counts as lost."""
        return self._cluster.heartbeat_timeout

    @property
    def roles(self) -> list[ProcessRole]:
        """The role of each process."""
        return [self._role(task) for task in self.tasks]

    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> list[WorkerProcess]:
        """Start every process once; ``command`` is for the chief. See `Cluster.start`."""
        self._of_r = command[0] != sys.executable
        jobs: dict[str, list[str]] = {}
        for task, port in zip(self.tasks, free_ports(len(self.tasks)), strict=True):
            jobs.setdefault(task.type, []).append(f"{_HOST}:{port}")
        self._configs = [tf_config(**jobs, type=task.type, index=task.index) for task in self.tasks]
        return launch(lambda index: self._start(index, command, run_dir), len(self.tasks))

    def start_again(self, index: int, run_dir: Path) -> WorkerProcess:
        """Restart the process of a server, at its address."""
        return self._start(index, _SERVER, run_dir)

    def without(self, worker: int, min_workers: int) -> None:
        """Return None: a job with servers cannot continue with fewer workers."""

    def _start(self, index: int, command: Sequence[str], run_dir: str | os.PathLike[str]) -> WorkerProcess:
        task = self.tasks[index]
        command = command if task.type == "chief" else _SERVER
        if task.type == "worker":
            env = self._cluster.environment(task.index)
        else:  # the others compute little, and nothing on a GPU
            env = self._cluster.common_environment()
            env |= {VISIBLE: NO_GPU} if visible_gpus(env) else {}
        if task.type != "chief" and self._of_r:  # Python does not find the R package's tfdistr
            users = env.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
            own = str(Path(__file__).parents[3])
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [own, users]))
        return self._cluster.start_process(index, command, run_dir, self._configs[index], env)

    def _role(self, task: Task) -> ProcessRole:
        if task.type == "worker":
            title = f"Worker {task.index} of {self._cluster.workers}"
            # Without parameter servers the worker holds a part of the model.
            return ProcessRole(title, str(task), replaceable=self._cluster.ps > 0)
        if task.type == "ps":
            return ProcessRole(f"The parameter server ps {task.index} of {self._cluster.ps}", str(task))
        return ProcessRole("The chief", str(task), leads=True)

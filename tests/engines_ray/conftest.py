"""A Ray cluster of three nodes on this machine, and jobs on it. Without Ray tests are skipped, and say so."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "helpers"))
from launched import command, processes_of, wait_for

from tfdistr.launch.ray_cluster import RayCluster, ray_cluster
from tfdistr.launch.supervisor import WorkerStatus, run_workers

CPUS = 2  # of each node
# Prints the resources that are not free: those of actors and of placement groups.
_TAKEN = """
import ray, sys
ray.init(sys.argv[1], log_to_driver=False, logging_level=40)
whole, free = ray.cluster_resources(), ray.available_resources()
print({name: amount for name, amount in whole.items() if free.get(name, 0) != amount})
"""


class Ray:
    """The cluster, as the tests see it."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.address: str = cluster.address
        self.others = [self.add(), self.add()]

    def add(self) -> Any:
        return self.cluster.add_node(num_cpus=CPUS)

    def lose(self, place: int) -> None:
        """Kill a node, as if its machine were lost."""
        self.cluster.remove_node(self.others.pop(place), allow_graceful=False)

    def taken(self) -> str:
        """What is not free; "{}" if all is."""
        asked = subprocess.run(
            [sys.executable, "-c", _TAKEN, self.address], capture_output=True, text=True, timeout=60
        )
        return asked.stdout.strip() or asked.stderr


@pytest.fixture(scope="module")
def ray(_nothing_is_left: None) -> Iterator[Ray]:
    pytest.importorskip("ray", reason="Ray is not installed here: make test-ray has it")
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")  # the paths of Ray's sockets are long
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": CPUS, "include_dashboard": False})
        try:
            yield Ray(cluster)
        finally:
            cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


class Job:
    """Runs workers on the cluster."""

    def __init__(self, ray: Ray, run_dir: Path) -> None:
        self.ray = ray
        self.run_dir = run_dir
        self.events: list[dict[str, Any]] = []

    def cluster(self, workers: int = 2, **options: Any) -> RayCluster:
        return ray_cluster(workers, **{"address": self.ray.address, **options})

    def run(
        self, behaviours: str, workers: int = 2, look: Callable[[dict[str, Any]], object] | None = None,
        **options: Any,
    ) -> list[WorkerStatus]:  # fmt: skip
        self.run_dir.mkdir(mode=0o700, exist_ok=True)

        def take(event: dict[str, Any]) -> None:
            self.events.append(event)
            if look is not None:
                look(event)

        return run_workers(self.cluster(workers, **options), command(behaviours), self.run_dir, take)


@pytest.fixture
def job(ray: Ray, tmp_path: Path) -> Iterator[Job]:
    job = Job(ray, tmp_path / "run")
    yield job
    wait_for(lambda: not processes_of(job.run_dir), 5)
    assert not processes_of(job.run_dir)
    wait_for(lambda: ray.taken() == "{}", 10)
    assert ray.taken() == "{}"


def when_ready(workers: int, act: Callable[[], object]) -> Callable[[dict[str, Any]], object]:
    """Looks at the events of a job; calls ``act`` in a thread when all workers are ready."""
    ready: set[int] = set()

    def look(event: dict[str, Any]) -> None:
        if event["event"] == "ready" and event["worker"] not in ready:
            ready.add(event["worker"])
            if len(ready) == workers:
                threading.Thread(target=act).start()

    return look

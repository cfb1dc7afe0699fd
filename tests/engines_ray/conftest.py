"""Jobs on a Ray cluster of three nodes on this machine. Without Ray tests are skipped, and say so."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "helpers"))
from elsewhere import ray
from launched import command, processes_of, wait_for
from ray_nodes import Ray

from tfdistr.clusters.ray.cluster import RayCluster, ray_cluster
from tfdistr.supervision.supervisor import WorkerStatus, run_workers

__all__ = ["ray"]


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

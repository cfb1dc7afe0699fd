"""Jobs on a Ray cluster of three nodes on this machine. Without Ray tests are skipped, and say so."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "helpers"))
import launched_job
from elsewhere import ray
from launched import processes_of, wait_for
from ray_nodes import Ray

from tfdistr.clusters.ray.ray_cluster import RayCluster, ray_cluster

__all__ = ["ray"]


class Job(launched_job.Job):
    """Runs workers on the cluster."""

    def __init__(self, ray: Ray, run_dir: Path) -> None:
        super().__init__(run_dir)
        self.ray = ray

    def cluster(self, workers: int = 2, **options: Any) -> RayCluster:
        return ray_cluster(workers, **{"address": self.ray.address, **options})


@pytest.fixture
def job(ray: Ray, tmp_path: Path) -> Iterator[Job]:
    job = Job(ray, tmp_path / "run")
    yield job
    wait_for(lambda: not processes_of(job.run_dir), 5)
    assert not processes_of(job.run_dir)
    wait_for(lambda: ray.taken() == "{}", 10)
    assert ray.taken() == "{}"

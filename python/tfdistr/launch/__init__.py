"""Starting the workers of a job, watching them, and ending them."""

from __future__ import annotations

from .local import LocalCluster, local_cluster
from .mpi import MpiCluster, mpi_cluster
from .process import die_with_parent
from .supervise import WorkerStatus, run_workers

__all__ = [
    "LocalCluster",
    "MpiCluster",
    "WorkerStatus",
    "die_with_parent",
    "local_cluster",
    "mpi_cluster",
    "run_workers",
]

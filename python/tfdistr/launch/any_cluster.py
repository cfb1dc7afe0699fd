"""The clusters whose workers tfdistr starts: what users may pass as ``cluster``."""

from __future__ import annotations

from tfdistr.launch.local import LocalCluster
from tfdistr.launch.ray_cluster import RayCluster
from tfdistr.launch.slurm_cluster import SlurmCluster
from tfdistr.launch.ssh_cluster import SshCluster

AnyCluster = LocalCluster | RayCluster | SlurmCluster | SshCluster

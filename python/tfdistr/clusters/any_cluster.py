"""The clusters whose workers tfdistr starts: what users may pass as ``cluster``."""

from __future__ import annotations

from tfdistr.clusters.local.cluster import LocalCluster
from tfdistr.clusters.ray.cluster import RayCluster
from tfdistr.clusters.slurm.cluster import SlurmCluster
from tfdistr.clusters.ssh.cluster import SshCluster

AnyCluster = LocalCluster | RayCluster | SlurmCluster | SshCluster

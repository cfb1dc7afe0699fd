"""The engines that start workers: a folder for each, and what they share."""

#: The function that describes the cluster of each engine, and its module. Python and R export these names.
ENGINES = {
    "local_cluster": "clusters.local.cluster",
    "ray_cluster": "clusters.ray.cluster",
    "slurm_cluster": "clusters.slurm.cluster",
    "ssh_cluster": "clusters.ssh.cluster",
}

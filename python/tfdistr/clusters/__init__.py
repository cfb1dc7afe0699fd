"""The kinds of clusters: a folder for each, and what they share."""

#: The function that describes each kind of cluster, and its module. Python and R export these names.
CLUSTERS = {
    "local_cluster": "clusters.local.local_cluster",
    "ray_cluster": "clusters.ray.ray_cluster",
    "slurm_cluster": "clusters.slurm.slurm_cluster",
    "ssh_cluster": "clusters.ssh.ssh_cluster",
}

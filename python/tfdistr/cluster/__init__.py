"""Which processes a cluster has: TF_CONFIG, the rendezvous of the workers, and who of them is lost."""

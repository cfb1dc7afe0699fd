"""The processes of a cluster: TF_CONFIG, the rendezvous of the workers, and the detection of lost workers."""

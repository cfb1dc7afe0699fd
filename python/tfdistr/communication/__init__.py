"""What carries the collectives of the workers: TensorFlow, with the ring or NCCL, or MPI."""

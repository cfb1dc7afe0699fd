"""The implementations of the collectives: TensorFlow, with the ring or NCCL, or MPI."""

"""The collectives: TensorFlow's ring or NCCL, or MPI."""

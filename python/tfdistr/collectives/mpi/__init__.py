"""The collectives over MPI, and how workers become the ranks of one MPI."""

"""Checkpoints of a job, exact resume, and restarts after a failure."""

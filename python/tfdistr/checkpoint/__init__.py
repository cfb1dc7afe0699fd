"""Checkpoints of a job: what is in them, when they are written, and how a run continues from one."""

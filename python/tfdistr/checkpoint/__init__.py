"""Checkpoints of a job: what is in them, when they are written, and how a run goes on from one."""

"""The checkpoints of a job: their content, their schedule, and the resumption of a run."""

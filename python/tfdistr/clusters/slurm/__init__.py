"""Workers that Slurm starts."""

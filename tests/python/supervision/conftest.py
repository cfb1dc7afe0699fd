"""Jobs of workers that do as their test says."""

from launched_job import job

__all__ = ["job"]

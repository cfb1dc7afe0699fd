"""Jobs of workers that do as their test says."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_lab
from launched_job import job

__all__ = ["job", "lab"]


@pytest.fixture(scope="module")
def lab() -> Iterator[slurm_lab.Lab]:
    """A Slurm in whose environment this process is."""
    reason = slurm_lab.missing()
    if reason:
        pytest.skip(f"no Slurm to test with: {reason}")
    with pytest.MonkeyPatch.context() as patch, slurm_lab.lab() as made:
        for name in list(os.environ):
            if name.startswith(("SLURM_", "SBATCH_", "PMI", "TF_CONFIG")):
                patch.delenv(name)
        for name, value in made.env.items():
            patch.setenv(name, value)
        patch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
        patch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        yield made

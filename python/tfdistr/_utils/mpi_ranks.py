"""What launchers tell the processes that they start: their ranks, and how many there are.

It is run by its path, too, and uses the standard library only, as rank_guard.py does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

#: For each launcher the environment variables of the rank, of the number of ranks, and of the number of those
#: on its host, where it has one: MPICH, Open MPI, PMIx, Slurm. The number of a step comes before the job's.
LAUNCHERS = (
    ("PMI_RANK", ("PMI_SIZE",), "MPI_LOCALNRANKS"),
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMIX_RANK", (), ""),
    ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ""),
)
#: The variables of the rank.
RANKS = tuple(rank for rank, _, _ in LAUNCHERS)
_SLURM = "SLURM_PROCID"
_SLURM_SPECIAL_STEPS = 0xFFFF_FFF0  # from here on: the shells of sbatch and salloc, which are no ranks


def launcher_of(environ: Mapping[str, str] = os.environ) -> tuple[str, int, int, int] | None:
    """What the launcher says of a process: the variable of its rank, that rank, how many there are, and here.

    Args:
        environ: The environment of the process; by default of this one.

    Returns:
        0 for a number that it does not say; None if no launcher has started the process.
    """
    for rank, sizes, local in LAUNCHERS:
        if environ.get(rank, "").isdigit() and (rank != _SLURM or _is_slurm_task(environ)):
            return rank, int(environ[rank]), _number(environ, sizes), _number(environ, (local,))
    return None


def ranks(environ: Mapping[str, str] = os.environ) -> int:
    """How many ranks the launcher of a process says there are; 1 if there was none."""
    for rank, sizes, _ in LAUNCHERS:
        if any(environ.get(name) for name in sizes) and (rank != _SLURM or _is_slurm_task(environ)):
            return _number(environ, sizes) or 1
    return 1


def _number(environ: Mapping[str, str], names: tuple[str, ...]) -> int:
    text = next((environ[name] for name in names if environ.get(name)), "")
    return int(text) if text.isdigit() else 0


def _is_slurm_task(environ: Mapping[str, str]) -> bool:
    """Whether ``srun`` has started the process, or what did."""
    step = environ.get("SLURM_STEP_ID", "")
    return _SLURM in environ and step.isdigit() and int(step) < _SLURM_SPECIAL_STEPS

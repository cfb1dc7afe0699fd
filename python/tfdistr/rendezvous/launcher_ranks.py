"""The rank and the number of ranks that a launcher passes to its processes.

This file is also run by its path and uses the standard library only, as guard.py does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

#: The variable of a Slurm task. The task is an MPI rank only if there is an MPI variable as well.
SLURM_RANK = "SLURM_PROCID"
#: The environment variables of MPICH, Open MPI, PMIx and Slurm: the rank, the number of ranks, and the
#: number of ranks on its host, if there is one. The variable of a Slurm step comes before the job's.
LAUNCHERS = (
    ("PMI_RANK", ("PMI_SIZE",), "MPI_LOCALNRANKS"),
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMIX_RANK", (), ""),
    (SLURM_RANK, ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ""),
)
#: The variables of the rank.
RANKS = tuple(rank for rank, _, _ in LAUNCHERS)
_PLACES = (
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
)
_SLURM_SPECIAL_STEPS = 0xFFFF_FFF0  # from here on: the shells of sbatch and salloc, which are not ranks


def launcher_of(environ: Mapping[str, str] = os.environ) -> tuple[str, int, int, int] | None:
    """Find the rank that the launcher gave a process.

    Returns:
        The variable of its rank, the rank, the number of ranks, and the number of ranks on its host. A number
        that the launcher does not give is 0. None if no launcher started the process.
    """
    for rank, sizes, local in LAUNCHERS:
        if environ.get(rank, "").isdigit() and (rank != SLURM_RANK or _is_slurm_task(environ)):
            return rank, int(environ[rank]), _number(environ, sizes), _number(environ, (local,))
    return None


def place_on_host() -> tuple[int, int] | None:
    """Return the index of an MPI rank among those of its host, and their number; None if it is not given."""
    for names in _PLACES:
        if all(os.environ.get(name, "").isdigit() for name in names):
            return int(os.environ[names[0]]), int(os.environ[names[1]])
    return None


def ranks(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of ranks from the launcher of a process; 1 if there was no launcher."""
    for rank, sizes, _ in LAUNCHERS:
        if any(environ.get(name) for name in sizes) and (rank != SLURM_RANK or _is_slurm_task(environ)):
            return _number(environ, sizes) or 1
    return 1


def _number(environ: Mapping[str, str], names: tuple[str, ...]) -> int:
    text = next((environ[name] for name in names if environ.get(name)), "")
    return int(text) if text.isdigit() else 0


def _is_slurm_task(environ: Mapping[str, str]) -> bool:
    """Return whether the process is a task of a Slurm step: ``srun`` or one of its tasks has started it."""
    step = environ.get("SLURM_STEP_ID", "")
    return SLURM_RANK in environ and step.isdigit() and int(step) < _SLURM_SPECIAL_STEPS

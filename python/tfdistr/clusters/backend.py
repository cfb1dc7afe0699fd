"""The backend of a cluster's collectives, if its launcher can choose it.

Most workers choose for themselves when they join: they know whether all have the same MPI. See
``collectives/choice.py``.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tfdistr.collectives.mpi.world import PRINT_LIBRARY, no_mpi
from tfdistr.utils.disk import BEFORE_START, writing
from tfdistr.utils.processes import run_program

if TYPE_CHECKING:
    from tfdistr.clusters.cluster import Cluster


@dataclass(frozen=True)
class Backend:
    """The backend of the collectives, and why it was chosen; "auto" leaves the choice to the workers."""

    communication: str
    cluster: Cluster
    reason: str

    def __str__(self) -> str:
        name = "left to the workers" if self.communication == "auto" else self.communication
        return f"communication: {name}, because {self.reason}"


def has_mpi4py() -> bool:
    """Return whether mpi4py is installed."""
    return find_spec("mpi4py") is not None


def mpi_library() -> str:
    """Return the version text of this Python's MPI library; an error without mpi4py or a library."""
    if not has_mpi4py():
        raise no_mpi("no mpi4py")
    library, error = _library(sys.executable)
    if error is not None:
        raise no_mpi(f"mpi4py, but no library: {error}")
    return library


def backend_path(run_dir: str | os.PathLike[str]) -> Path:
    """Return the file of the run directory with the backend and the reason for it."""
    return Path(run_dir) / "backend.txt"


def write_backend(backend: Backend, run_dir: Path) -> None:
    """Write the gradients' backend and its reason, for the log of the chief."""
    path = backend_path(run_dir)
    with writing(path, fix=BEFORE_START):
        path.write_text(str(backend))


@lru_cache(maxsize=2)
def _library(python: str) -> tuple[str, str | None]:
    """Return the first line of the version text of the MPI library, and the error if it cannot be loaded."""
    ended = run_program([python, "-c", PRINT_LIBRARY], 60.0)
    return ended.output.strip().partition("\n")[0], ended.failure

"""The names in /dev/shm of an MPI job, and their removal.

MPICH makes the names of the memory that ranks share from the name of the job. UCX makes random names, so it
gets a folder of the job. Both remove their names while MPI starts. If a rank is killed meanwhile, the names
stay, and the memory with them. Whoever has started the workers then removes them: it knows ``START``, a
random text of each start, from which the workers derive the names of the job and of the folder.

Programs that run by their path read this file by its path, so it uses the standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

START = "TFDISTR_START"
"""The environment variable with the random text of a start. Others must not know it before MPI starts."""
SHARED = Path("/dev/shm")
_KINDS = ("mpich_shm", "mpich_vci")


def job_of_start(start: str) -> str:
    """Return the name of the MPI job of a start."""
    return f"tfdistr-{start}"


def folder_of_start(start: str) -> Path:
    """Return the folder of a start for UCX. Its name does not tell the names of the memory."""
    return SHARED / f"tfdistr-{hashlib.sha256(start.encode()).hexdigest()[:32]}"


def remove_names_of_start(start: str) -> None:
    """Remove the names of a start when one of its workers has exited; "" is no start."""
    if start:
        remove_names_of_job(job_of_start(start))
        shutil.rmtree(folder_of_start(start), ignore_errors=True)


def remove_names_of_job(job: str) -> None:
    """Remove the names of a job, when one of its ranks has exited or no rank needs them."""
    # After version 5.0, MPICH also appends how often a process has started MPI.
    hashes = [_hash(text) for text in (job, f"{job}-1")] if job else []
    begins = tuple(f"{kind}_{number:x}_" for kind in _KINDS for number in hashes)
    with contextlib.suppress(OSError):
        for name in os.listdir(SHARED) if begins else ():
            if name.startswith(begins):
                (SHARED / name).unlink(missing_ok=True)


def remove_names(process: int) -> None:
    """Remove the names of the memory that a rank has mapped.

    Call it when all ranks have mapped the memory, or when no further rank will start.
    """
    for path in mapped_names(process):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def mapped_names(process: int) -> set[Path]:
    """Return the names of the memory that a rank has mapped; empty if the rank has exited."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/maps").read_text().splitlines()
        paths = {line.split(maxsplit=5)[-1] for line in lines}
        return {Path(path) for path in paths if path.startswith(f"{SHARED}/{_KINDS[0]}_")}
    return set()


def _hash(text: str) -> int:
    """Compute MPICH's hash of a job's name: FNV-1a of 32 bits."""
    number = 2166136261
    for byte in text.encode():
        number = (number ^ byte) * 16777619 % 2**32
    return number

"""The names of the memory that MPICH ranks share. They stay in /dev/shm if a rank is killed.

MPICH maps this memory in ``MPI_Init``. It makes the name of the memory from the job's name. The process
manager of ``mpiexec`` tells the job's name to any process that has the connection of a rank. So a rank asks
for it before it starts MPI, and passes it to the process that watches its start; see init_timeout.py.

This file is run by its path and uses the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

_FOLDER = Path("/dev/shm")
_KINDS = ("mpich_shm", "mpich_vci")


def job_name() -> str:
    """Return the name of this process's job, from MPICH's process manager; "" without such a manager.

    MPI must not have started in this process: otherwise MPI would receive the answer.
    """
    manager = os.environ.get("PMI_FD", "")
    # Only MPICH's manager sets both. Slurm's manager needs a greeting before a question.
    if not manager.isdigit() or "PMI_HOSTNAME" not in os.environ:
        return ""
    answer = b""
    with contextlib.suppress(OSError):
        if not stat.S_ISSOCK(os.fstat(int(manager)).st_mode):
            return ""  # the parent process has not passed on the connection
        os.write(int(manager), b"cmd=get_my_kvsname\n")
        while not answer.endswith(b"\n"):
            part = os.read(int(manager), 1024)
            if not part:
                return ""
            answer += part
    words = dict(word.split("=", 1) for word in answer.decode().split() if "=" in word)
    return words.get("kvsname", "")


def remove_names_of_job(job: str) -> None:
    """Remove the names of a job, when one of its ranks has exited or no rank needs them."""
    # After version 5.0, MPICH also appends how often a process has started MPI.
    hashes = [_hash(text) for text in (job, f"{job}-1")] if job else []
    begins = tuple(f"{kind}_{number:x}_" for kind in _KINDS for number in hashes)
    with contextlib.suppress(OSError):
        for name in os.listdir(_FOLDER) if begins else ():
            if name.startswith(begins):
                (_FOLDER / name).unlink(missing_ok=True)


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
        return {Path(path) for path in paths if path.startswith(f"{_FOLDER}/{_KINDS[0]}_")}
    return set()


def _hash(text: str) -> int:
    """Compute MPICH's hash of a job's name: FNV-1a of 32 bits."""
    number = 2166136261
    for byte in text.encode():
        number = (number ^ byte) * 16777619 % 2**32
    return number

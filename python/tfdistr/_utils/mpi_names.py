"""The names of the memory that ranks of MPICH share: they stay in /dev/shm where a rank is killed.

MPICH maps this memory in ``MPI_Init``, by a name that it makes of the job's name. The process manager tells
the job's name to whoever has the connection of a rank. So a process that stands by a rank asks for it before
the rank starts, and removes the job's names when the rank is gone, however early it was killed.

It is run by its path and uses the standard library only, as rank_guard.py does.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

_FOLDER = Path("/dev/shm")
_KINDS = ("mpich_shm", "mpich_vci")
# Seconds that processes which were killed have to end.
_GONE = 5.0


def job_name() -> str:
    """The name of this process's job, by the process manager of MPICH; "" where there is none of it.

    MPI must not have started in this process: the answer would go to it.
    """
    manager = os.environ.get("PMI_FD", "")
    # Only MPICH's own sets both. Slurm's takes no question before it was greeted.
    if not manager.isdigit() or "PMI_HOSTNAME" not in os.environ:
        return ""
    answer = b""
    with contextlib.suppress(OSError):
        if not stat.S_ISSOCK(os.fstat(int(manager)).st_mode):
            return ""  # what started this process has kept the connection to itself
        os.write(int(manager), b"cmd=get_my_kvsname\n")
        while not answer.endswith(b"\n"):
            part = os.read(int(manager), 1024)
            if not part:
                return ""
            answer += part
    words = dict(word.split("=", 1) for word in answer.decode().split() if "=" in word)
    return words.get("kvsname", "")


def remove_names_of_job(job: str) -> None:
    """Remove the names of a job: when one of its ranks is gone, or when none needs them any more."""
    # After version 5.0 MPICH also counts how often a process has started MPI.
    hashes = [_hash(text) for text in (job, f"{job}-1")] if job else []
    begins = tuple(f"{kind}_{number:x}_" for kind in _KINDS for number in hashes)
    with contextlib.suppress(OSError):
        for name in os.listdir(_FOLDER) if begins else ():
            if name.startswith(begins):
                (_FOLDER / name).unlink(missing_ok=True)


def remove_after(group: int, job: str) -> None:
    """Remove the names of a job when no process of a group is left, all of which were killed."""
    until = time.monotonic() + _GONE
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while job and time.monotonic() < until:
            os.killpg(group, 0)
            time.sleep(0.02)
    remove_names_of_job(job)


def remove_names(process: int) -> None:
    """Remove the names of the memory that a rank has mapped.

    To be called when all ranks have mapped it, or none is to come any more.
    """
    for path in mapped_names(process):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def mapped_names(process: int) -> set[Path]:
    """The names of the memory that a rank has mapped, while they are there."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/maps").read_text().splitlines()
        paths = {line.split(maxsplit=5)[-1] for line in lines}
        return {Path(path) for path in paths if path.startswith(f"{_FOLDER}/{_KINDS[0]}_")}
    return set()


def _hash(text: str) -> int:
    """MPICH's hash of a job's name: FNV-1a of 32 bits."""
    number = 2166136261
    for byte in text.encode():
        number = (number ^ byte) * 16777619 % 2**32
    return number

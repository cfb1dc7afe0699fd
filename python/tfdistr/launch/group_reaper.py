"""Ends a worker and its process group when the process that started the worker is gone.

    python group_reaper.py PARENT_PID GROUP JOB

The kernel then ends the worker itself (see ``die_with_parent``), but not the rest of its process group. If
the worker was a rank of the MPI job JOB, the names that the job leaves in /dev/shm are removed, too.

The script is run by its path and uses the standard library only, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys
import time

_LOOK = 0.2  # seconds
_MPI_NAMES = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "_utils", "mpi_names.py")


def main(parent: int, group: int, job: str) -> None:
    """Wait until ``parent``, which has started this process, is gone; then kill the process group."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left (macOS: only zombies)
        os.killpg(group, signal.SIGKILL)
    if job:
        runpy.run_path(_MPI_NAMES)["remove_after"](group, job)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])

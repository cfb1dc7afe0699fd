"""The room in /dev/shm for the memory that the ranks of a host share.

MPICH makes a file of this size there, and writes to it later: on a full disk, SIGBUS then kills the rank.
"""

from __future__ import annotations

import os
import tempfile

from tfdistr.utils.shared_names import SHARED

# Bytes. MPICH 5.0.2 takes 1,059,392 for each of 2 ranks (a process's mapping in /proc/PID/maps, halved), and
# 2 to 8 ranks start with 1,081,344 for each. UCX takes less if there is no more.
_PER_RANK = 5 << 18


def why_refused() -> str:
    """Return why this process cannot share memory with others; "" if it can."""
    try:
        tempfile.TemporaryFile(dir=SHARED).close()
    except FileNotFoundError:
        return ""  # not on Linux
    except OSError as error:
        return f"it cannot write to {SHARED} ({error.strerror})"
    return ""


def free_room() -> int | None:
    """Return the free bytes for shared memory; None if not known."""
    try:
        disk = os.statvfs(SHARED)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


def too_small(free: int | None, ranks: int) -> str:
    """Return why ``free`` bytes are too few for the ranks of a host; "" if they are enough."""
    needed = ranks * _PER_RANK
    if free is None or free >= needed:
        return ""
    return f"its {SHARED} has {free:,} bytes free, and MPI needs {needed:,} for {ranks} ranks"


#: The fix.
MORE_ROOM = f"Make room in {SHARED} (docker run --shm-size=1g)"

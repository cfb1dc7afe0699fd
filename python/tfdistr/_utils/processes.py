"""Processes: their state, and how one ends with its parent.

The helpers that run by their path read this file by its path, so it uses the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

PARENT = "TFDISTR_PARENT_PID"
"""The environment variable that tells a worker which process started it."""
_PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>


def end_with_parent(number: int) -> None:
    """Have the kernel send this process a signal, or none (0), when its parent ends; only Linux does that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def die_with_parent() -> None:
    """End this worker when the process that started it is gone, however that ended.

    To be called in the worker, as early as possible. On Linux the kernel sends SIGKILL, which ends also a
    stopped worker; elsewhere, and where a wrapper stands between the two, a thread watches. Without the
    environment variable TFDISTR_PARENT_PID (a worker started by hand) this does nothing.
    """
    parent = int(os.environ.get(PARENT, "0"))
    if not parent:
        return
    child = os.getppid() == parent
    if child:
        end_with_parent(signal.SIGKILL)
    if os.getppid() != parent if child else not _exists(parent):
        os._exit(1)  # it ended before the kernel was told to look out for it
    if not child or sys.platform != "linux":
        threading.Thread(target=_watch, args=(parent, os.getppid()), daemon=True).start()


def _watch(parent: int, direct_parent: int) -> None:
    while _exists(parent) and os.getppid() == direct_parent:
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return process_state(pid) != "Z"


def process_state(pid: int) -> str | None:
    """The letter of a process's state, such as "R", or "Z" once it has ended; None where Linux is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None

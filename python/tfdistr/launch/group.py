"""Ends a worker, and what it has started, when the process that started the worker is gone.

    python group.py PARENT_PID GROUP

The kernel ends the worker itself then (see ``die_with_parent``), but not the rest of its process group.

It is run by its path and uses the standard library only, so that it is there at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

_LOOK = 0.2  # seconds


def main(parent: int, group: int) -> None:
    """Wait until ``parent``, which has started this process, is gone, and kill the process group then."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left (macOS: only zombies)
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

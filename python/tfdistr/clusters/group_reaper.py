"""The end of a worker's process group after the process that started the worker.

    python group_reaper.py PARENT_PID GROUP

When that process exits, the kernel kills the worker itself (see ``die_with_parent``), but not the rest of its
process group.

The script is run by its path and uses the standard library only, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

_POLL_INTERVAL = 0.2  # seconds


def main(parent: int, group: int) -> None:
    """Wait until ``parent``, which has started this process, exits; then kill the process group."""
    while os.getppid() == parent:
        time.sleep(_POLL_INTERVAL)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left (macOS: only zombies)
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

"""The cancellation of a Slurm job when the process that has submitted it exits.

    python canceller.py PARENT_PID JOB

The script is run by its path and uses the standard library only, so that it starts at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

_POLL_INTERVAL = 0.2  # seconds
_TRIES = 30  # the controller may be busy
_PAUSE = 10.0  # seconds


def main(parent: int, job: str) -> None:
    """Wait until ``parent``, which has started this process, exits; then cancel ``job``."""
    while os.getppid() == parent:
        time.sleep(_POLL_INTERVAL)
    for _ in range(_TRIES):
        if subprocess.run(["scancel", job], stdin=subprocess.DEVNULL, check=False).returncode == 0:
            return
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

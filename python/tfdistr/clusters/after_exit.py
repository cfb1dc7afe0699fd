"""The cleanup after the exit of a process: it kills a process group, or cancels a Slurm job.

    python after_exit.py PARENT_PID kill GROUP
    python after_exit.py PARENT_PID cancel JOB

When a guard exits, the kernel kills its worker (see ``die_with_parent``), but not the rest of the worker's
process group. Ranks that are killed while MPI starts leave names in /dev/shm, which are removed then.

The script is run by its path and uses the standard library only, so that it starts at once.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time

_POLL_INTERVAL = 0.2  # seconds
_TRIES = 30  # Slurm's controller may be busy
_PAUSE = 10.0  # seconds
_CORE = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)


def kill(group: int) -> None:
    """Kill a process group, and remove the names of its start in /dev/shm."""
    runpy.run_path(os.path.join(_CORE, "utils", "processes.py"))["kill_group"](group)
    names = runpy.run_path(os.path.join(_CORE, "utils", "shared_names.py"))
    names["remove_names_of_start"](os.environ.get(names["START"], ""))


def cancel(job: str) -> None:
    """Cancel a Slurm job."""
    for _ in range(_TRIES):
        if subprocess.run(["scancel", job], stdin=subprocess.DEVNULL, check=False).returncode == 0:
            return
        time.sleep(_PAUSE)


def main(parent: int, action: str, target: str) -> None:
    """Wait until ``parent``, which has started this process, exits; then do the action."""
    while os.getppid() == parent:
        time.sleep(_POLL_INTERVAL)
    if action == "kill":
        kill(int(target))
    else:
        cancel(target)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])

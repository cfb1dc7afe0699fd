"""A worker that tells what a process has of its own: python forked.py RUN_DIR INDEX."""

import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np

from tfdistr.supervision.events import EventWriter


def sockets() -> int:
    """The number of open sockets."""
    found = 0
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing's own
            found += os.readlink(file).startswith("socket")
    return found


if __name__ == "__main__":
    mask = os.umask(0)
    events = EventWriter(sys.argv[1], int(sys.argv[2]))
    events.write(
        "state", pid=os.getpid(), parent=os.getppid(), group=os.getpgid(0), argv=sys.argv, path=sys.path[0],
        folder=os.getcwd(), umask=mask, random=np.random.rand(), temporary=tempfile.gettempdir(),
        sockets=sockets(), command=Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode().split("\0"),
        child_signal=signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
        tensorflow="tensorflow" in sys.modules,
        variables={name: os.environ.get(name) for name in ("OF_JOB", "OF_SESSION", "OMP_NUM_THREADS")},
    )  # fmt: skip
    events.write("done", seconds=0.1)

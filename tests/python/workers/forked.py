"""A worker that tells what a process has of its own: python forked.py RUN_DIR INDEX."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np

from tfdistr.events import EventWriter

if __name__ == "__main__":
    mask = os.umask(0)
    events = EventWriter(sys.argv[1], int(sys.argv[2]))
    events.write(
        "state", pid=os.getpid(), parent=os.getppid(), group=os.getpgid(0), argv=sys.argv, path=sys.path[0],
        folder=os.getcwd(), umask=mask, random=np.random.rand(), temporary=tempfile.gettempdir(),
        cores=sorted(os.sched_getaffinity(0)), files=sorted(os.readlink(f"/proc/self/fd/{i}") for i in range(3)),
        sockets=sum(os.readlink(file).startswith("socket") for file in map(str, Path("/proc/self/fd").iterdir())
                    if os.path.exists(file)),
        command=Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode().split("\0"),
        child_signal=signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, tensorflow="tensorflow" in sys.modules,
        variables={name: os.environ.get(name) for name in ("OF_JOB", "OF_SESSION", "OMP_NUM_THREADS")},
    )  # fmt: skip
    events.write("done", seconds=0.1)

"""Scripts that a test lets ``tfdistr run`` start, and their workers."""

from __future__ import annotations

import time
from pathlib import Path

#: What each worker of a script writes first.
PID = "import os, pathlib\npathlib.Path(f'pid-{os.getpid()}').touch()\n"


def pids(folder: Path) -> list[int]:
    """The process ids of the workers that have begun their script."""
    return [int(path.name.removeprefix("pid-")) for path in folder.glob("pid-*")]


def wait_for_workers(folder: Path, number: int) -> list[int]:
    """Wait until so many workers have begun their script."""
    end = time.monotonic() + 60
    while len(pids(folder)) < number:
        assert time.monotonic() < end, "the workers have not begun"
        time.sleep(0.05)
    return pids(folder)

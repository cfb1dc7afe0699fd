"""What is to be seen of the processes of a job."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """What a condition gives, when it gives something; a failure after so many seconds."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.05)
    return found


def containing(text: str, pids: set[int], folder: Path) -> list[str]:
    """The command lines of processes, and the files in a folder, that have a text in them."""
    files = [Path(f"/proc/{pid}/cmdline") for pid in pids]
    files += [path for path in folder.rglob("*") if path.is_file()]
    found = []
    for file in files:
        with contextlib.suppress(OSError):  # it has ended
            if text.encode() in file.read_bytes():
                found.append(str(file))
    return found


def everybody() -> set[int]:
    """All processes of this machine."""
    return {int(process.name) for process in Path("/proc").glob("[0-9]*")}

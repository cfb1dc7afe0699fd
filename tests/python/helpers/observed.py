"""What is to be seen of the processes of a job."""

import contextlib
from pathlib import Path


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

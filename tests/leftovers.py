"""What tests leave on this machine: processes, sockets that listen, shared memory and temporary files."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

MARK = "OWNER_OF_TEST"
"""The environment variable by which a process is known that a test has started, whoever its parent is."""
_SHARED = Path("/dev/shm")
_SHARED_NAMES = ("mpich_shm_*", "tfdistr*")
# Until the session ends: its fork servers, what looks after semaphores of multiprocessing, the temporary
# run directories of its jobs, what TensorFlow has compiled of functions, and locks of uv.
_OF_SESSION = (
    "tfdistr.fork_server.server", "tfdistr/fork_server/remote.py", "tfdistr:::fork_server()",
    "multiprocessing.resource_tracker",
)  # fmt: skip
_MAY_STAY = re.compile(r"tfdistr-warm-.*|uv-.*\.lock|tfdistr-\w{8}|__autograph_generated_file.*|pytest-of-.*")
_GRACE = 10.0  # seconds for what is ending


def own_everything() -> None:
    """Have what this process starts carry a mark, and have temporary files in a folder that goes with it."""
    os.environ[MARK] = str(uuid.uuid4())
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # pytest keeps those of some runs
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="tests-")
    atexit.register(_remove, tempfile.tempdir, os.getpid())


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # and not a fork of it
        shutil.rmtree(folder, ignore_errors=True)


class Present:
    """What is there now."""

    def __init__(self) -> None:
        self.processes = dict(_processes())
        self.files = {path for path in Path(tempfile.gettempdir()).iterdir() if _may_not_stay(path)}
        self.shared = {path for name in _SHARED_NAMES for path in _SHARED.glob(name)}
        self.listening = set(listening())

    def since(self, before: Present) -> list[str]:
        """What was not there before, one line for each."""
        started = self.processes.items() - before.processes.items()
        processes = [f"process {pid}: {line}" for pid, line in started]
        files = [f"temporary: {path}" for path in self.files - before.files]
        shared = [f"shared memory: {path}" for path in self.shared - before.shared if not _is_mapped(path)]
        ports = [f"a port of this process: {port}" for port in self.listening - before.listening]
        return sorted([*processes, *files, *shared, *ports])


def left_since(before: Present) -> list[str]:
    """What is there that was not, when what is ending has had the time for it. Its processes are killed."""
    until = time.monotonic() + _GRACE
    while (left := (now := Present()).since(before)) and time.monotonic() < until:
        time.sleep(0.1)
    for pid in now.processes.keys() - before.processes.keys():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return left


def _processes() -> Iterator[tuple[int, str]]:
    """The processes that this one has started, and those that these have: their numbers and commands."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    parents: dict[int, int] = {}
    found: dict[int, str] = {}
    marked = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid = int(process.name)
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if state == "Z" or not command:
                continue
            parents[pid], found[pid] = int(parent), command
            if mark in (process / "environ").read_bytes().split(b"\0"):
                marked.add(pid)
    for pid, command in found.items():
        descends = pid in marked or os.getpid() in _ancestors(pid, parents)
        if descends and pid != os.getpid() and not any(part in command for part in _OF_SESSION):
            yield pid, command


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid := parents.get(pid, 0):
        yield pid


def _may_not_stay(path: Path) -> bool:
    return not _MAY_STAY.fullmatch(path.name)


def _is_mapped(path: Path) -> bool:
    """Whether a process, perhaps of other tests that run now, uses shared memory."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if str(path) in maps.read_text():
                return True
    return False


def listening(pid: int | str = "self") -> Iterator[str]:
    """The TCP sockets on which a process listens."""
    own = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(os.readlink(file))
    for kind in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                    yield str(int(fields[1].rpartition(":")[2], 16))

"""The state of processes and of their system, and the exit of a process with its parent.

The helpers that run by their path read this file by its path, so it uses the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

PARENT = "TFDISTR_PARENT_PID"
"""The environment variable with the process that started a worker."""
_PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>


def end_with_parent(number: int) -> None:
    """Make the kernel send this process a signal (0: none) when its parent exits. Works only on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def die_with_parent() -> None:
    """Kill this worker when the process that started it exits in any way.

    Call it in the worker, as early as possible. On Linux the kernel sends SIGKILL, which also kills a stopped
    worker. On other systems, or if a wrapper is between the two processes, a thread watches. Without the
    environment variable TFDISTR_PARENT_PID (a worker started by hand) this does nothing.
    """
    parent = int(os.environ.get(PARENT, "0"))
    if not parent:
        return
    child = os.getppid() == parent
    if child:
        end_with_parent(signal.SIGKILL)
    if os.getppid() != parent if child else not _exists(parent):
        os._exit(1)  # the parent exited before the kernel watched it
    if not child or sys.platform != "linux":
        threading.Thread(target=_watch, args=(parent, os.getppid()), daemon=True).start()


def _watch(parent: int, direct_parent: int) -> None:
    while _exists(parent) and os.getppid() == direct_parent:
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # a process of another user
    return process_state(pid) != "Z"


def kill_group(group: int, seconds: float = 2.0) -> None:
    """Kill a process group, and wait until it is gone: a killed process may still end a system call.

    The wait has a limit, because a container may have no process that reaps the dead.
    """
    until = time.monotonic() + seconds
    with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left (macOS: only zombies)
        os.killpg(group, signal.SIGKILL)
        while time.monotonic() < until:
            time.sleep(0.01)
            os.killpg(group, 0)


def wait_or_kill(process: subprocess.Popen[Any], seconds: float) -> None:
    """Wait until a process exits, and kill it if it has not exited in time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class ProgramEnd(NamedTuple):
    """The output of a program, and the reason in a line if it failed, otherwise None."""

    output: str
    failure: str | None


def run_program(command: Sequence[str], timeout: float, **options: Any) -> ProgramEnd:
    """Run a program without input, for ``timeout`` seconds at most; ``options`` are those of subprocess."""
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout,
            stdin=subprocess.DEVNULL, **options,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ProgramEnd("", f"no answer within {timeout:g} s")
    except OSError as error:
        return ProgramEnd("", f"{command[0]}: {error.strerror}")
    last = (ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1]
    return ProgramEnd(ended.stdout, last if ended.returncode else None)


def process_state(pid: int) -> str | None:
    """Return the letter of a process's state, such as "R", or "Z" if it has exited; None if not known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None


def usable_cores() -> list[int]:
    """Return the cores on which this process may run."""
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return list(range(os.cpu_count() or 1))


class _Session:
    """The answer that the caller has set for this process."""

    lives_on: bool | None = None  # None: ask Python


def lives_on(session: bool) -> None:
    """Set whether this process is a session that lives on. R calls it, because Python cannot detect it."""
    _Session.lives_on = session


def ignore_sigpipe() -> None:
    """Make a write to a closed pipe or socket an error of the write, as in each Python process.

    R calls this. R's SIGPIPE handler raises an R error, which jumps out of Python's code and out of its
    threads: the process crashed with "stack smashing detected". Programs that Python starts have the default
    action of the signal.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def is_session() -> bool:
    """Return whether this process is a session that lives on after an error, and not a script."""
    if _Session.lives_on is not None:
        return _Session.lives_on
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or _in_ipython()


def _in_ipython() -> bool:
    """Return whether IPython runs this process; scripts may also import it."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython is not None and get_ipython() is not None


def running_system() -> str:
    """Return the id of the running system. It is the name of the host where systems have no id."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not on Linux
        return socket.gethostname()

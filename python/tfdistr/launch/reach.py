"""Runs the program that reaches a host for mpiexec, and records its exit status: mpiexec does not tell it.

    python reach.py FILE CALLER HOST,HOST... NUMBER WORD... ARGUMENT...

The first NUMBER words are the program. The rest are mpiexec's arguments, one of which is the host. A line of
FILE has the host and the exit status of the program: the status of the process that mpiexec has started on
the host, 255 if ssh has lost it, or null if the program did not end with mpiexec. CALLER is the process that
has started mpiexec's guard.

The script is run by its path and uses the standard library only, as rank_guard.py does.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from typing import Any

_UTILS = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "_utils")
_END_WITH_PARENT = runpy.run_path(os.path.join(_UTILS, "processes.py"))["end_with_parent"]
# Seconds that the program has to end by itself after mpiexec; its process on the host then ends, too.
_GRACE = 2


def main(file: str, caller: int, hosts: list[str], program: list[str], arguments: list[str]) -> int:
    """Run ``program``, which reaches one of ``hosts``, and record its exit status in ``file``."""
    # One of them is the port of mpiexec: while it is open here, the process on the host waits for an answer.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    host = next((word for word in arguments if word in hosts), None)
    try:
        child = subprocess.Popen(
            [*program, *arguments],
            preexec_fn=lambda: _END_WITH_PARENT(signal.SIGKILL),  # noqa: PLW1509 - no threads here
        )
    except OSError as error:
        print(f"{program[0]}: {error.strerror}", file=sys.stderr)
        return _note(file, host, 127)
    given_up = False

    def end(number: int, frame: Any) -> None:
        nonlocal given_up
        if number == signal.SIGALRM:
            given_up = True
            child.kill()
        else:
            signal.alarm(_GRACE)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, end)
    _END_WITH_PARENT(signal.SIGTERM)
    if sys.platform == "linux" and caller not in _ancestors():  # mpiexec had ended before
        end(signal.SIGTERM, None)
    status = child.wait()
    return _note(file, host, None if given_up else status)


def _ancestors() -> list[int]:
    """The ids of the ancestors of this process, the nearest first."""
    found = [os.getppid()]
    while found[-1] > 1:
        try:
            with open(f"/proc/{found[-1]}/stat", encoding="utf-8", errors="replace") as file:
                found.append(int(file.read().rpartition(")")[2].split()[1]))
        except OSError:
            break
    return found


def _note(file: str, host: str | None, status: int | None) -> int:
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    # One write, so that lines of several hosts do not mix.
    os.write(descriptor, f"{json.dumps({'host': host, 'status': status})}\n".encode())
    return 1 if status is None else status if status >= 0 else 128 - status


if __name__ == "__main__":
    words = sys.argv[5:]
    number = int(sys.argv[4])
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3].split(","), words[:number], words[number:]))

"""The heartbeats of a process to its peers. A helper process sends them.

The kernel keeps the connections of a stopped process. A Python thread cannot send the heartbeats: an
R or C function may hold Python's lock for long. So a small process sends them. It sends none while its
parent is stopped, and it exits with its parent.

    python heartbeat.py PARENT_PID SECONDS SOCKET...    (until its standard input ends)
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterable

#: A heartbeat is an empty line.
BEAT = b"\n"


class Heartbeat:
    """The process that sends the heartbeats of this one, until ``stop()`` or the end of this process."""

    def __init__(self, connections: Iterable[socket.socket], seconds: float) -> None:
        numbers = [connection.fileno() for connection in connections]
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(seconds)]
        # A new session, because a signal to this process group is not for it.
        self._process = subprocess.Popen(
            [*command, *map(str, numbers)], stdin=subprocess.PIPE, pass_fds=numbers, start_new_session=True
        )

    def stop(self) -> None:
        """End the process, so that it does not keep the connections open."""
        self._process.kill()
        self._process.communicate()


def main(parent: int, seconds: float, numbers: Iterable[int]) -> None:
    """Send the heartbeats of the process ``parent``."""
    connections = [socket.socket(fileno=number) for number in numbers]
    while not select.select([sys.stdin], [], [], seconds)[0] and os.getppid() == parent:
        if _is_stopped(parent):
            continue
        for connection in connections:
            with contextlib.suppress(OSError):  # the peer has exited, or has not read the last ones
                connection.send(BEAT)


def _is_stopped(process: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2][:1] in (b"T", b"t")
    return False


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), map(int, sys.argv[3:]))

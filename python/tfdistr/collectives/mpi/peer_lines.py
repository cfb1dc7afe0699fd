"""Lines of text over the connections of the rendezvous, between two processes that take turns."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable

_POLL = 0.1  # seconds
_LONGEST = 1 << 16


class PeerLines:
    """A socket from which single lines are read: the bytes after a line stay in the socket.

    Args:
        connection: The socket, which does not block.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def fileno(self) -> int:
        """Return the number of the socket, for ``select``."""
        return self._connection.fileno()

    def read(self) -> str | None:
        """Return a line; None if it is not complete.

        Raises:
            OSError: The connection is closed, or the line is too long.
        """
        try:
            begun = self._connection.recv(_LONGEST, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        end = begun.find(b"\n") + 1
        if not begun or (not end and len(begun) == _LONGEST):
            raise ConnectionAbortedError("no line")
        if not end:
            time.sleep(0.001)  # select would return at once
            return None
        return self._connection.recv(end)[:-1].decode(errors="replace")

    def send(self, line: str) -> None:
        """Send a line.

        Raises:
            OSError: The connection is closed.
        """
        left = memoryview(f"{line}\n".encode())
        while left:
            try:
                left = left[self._connection.send(left) :]
            except BlockingIOError:
                _poll([self._connection], select.POLLOUT)


def readable(*connections: PeerLines | socket.socket) -> list[PeerLines | socket.socket]:
    """Return the connections with something to read, after a short wait."""
    ready = _poll(connections, select.POLLIN)
    return [connection for connection in connections if connection.fileno() in ready]


def _poll(connections: Iterable[PeerLines | socket.socket], event: int) -> set[int]:
    poll = select.poll()  # ``select.select`` takes no file of a number above 1023
    for connection in connections:
        poll.register(connection, event)
    return {number for number, _ in poll.poll(_POLL * 1000)}

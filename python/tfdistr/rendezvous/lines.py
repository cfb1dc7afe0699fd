"""Connections of processes that carry lines of text."""

from __future__ import annotations

import collections
import select
import socket
from collections.abc import Iterable

from tfdistr.utils.log_tail import LineReader

_READ, _LONGEST = 1 << 16, 1 << 20


class Lines:
    """A connection that carries lines. What has arrived after a line stays here for the next reader."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self._reader = LineReader(_LONGEST)
        self._whole: collections.deque[str] = collections.deque()

    def take(self) -> str | None:
        """Return the next line; None if it is not complete.

        Raises:
            OSError: The connection has ended.
        """
        if not self._whole:
            try:
                read = self.connection.recv(_READ)
            except BlockingIOError:
                return None
            if not read:
                raise ConnectionAbortedError("no more lines")
            self._whole.extend(self._reader.take(read))
        return self._whole.popleft() if self._whole else None

    def send(self, line: str) -> None:
        """Send a line, and wait while the peer has no room for it."""
        left = memoryview(f"{line}\n".encode())
        while left:
            try:
                left = left[self.connection.send(left) :]
            except BlockingIOError:
                _poll([self], select.POLLOUT, None)

    @property
    def has_line(self) -> bool:
        """Whether a line has arrived that nobody has taken."""
        return bool(self._whole)


def ready(connections: Iterable[Lines], seconds: float) -> list[Lines]:
    """Return the connections on which something has arrived. Wait at most ``seconds`` for it."""
    asked = list(connections)
    come = _poll(asked, select.POLLIN, 0.0 if any(each.has_line for each in asked) else seconds)
    return [each for each in asked if each.has_line or each.connection.fileno() in come]


def _poll(connections: Iterable[Lines], event: int, seconds: float | None) -> set[int]:
    poll = select.poll()  # ``select.select`` takes no file of a number above 1023
    for each in connections:
        poll.register(each.connection, event)
    return {number for number, _ in poll.poll(None if seconds is None else seconds * 1000)}

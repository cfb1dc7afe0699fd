"""Has the workers that a program starts be forks of the server that has forked the program itself."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tfdistr.launch.warm import servers


@dataclass
class _Borrowed:
    """A fork server of another session, which that one ends."""

    server: str
    place: servers.Place = servers.Place()

    def path(self) -> str:
        return self.server


def borrow_server() -> None:
    """Start no server for this session, if it is a fork. Its workers then find what its server has read."""
    server = os.environ.get("SERVER_OF_TESTS")
    if server:
        servers._servers.get = lambda kind, env: _Borrowed(server)  # type: ignore[method-assign]

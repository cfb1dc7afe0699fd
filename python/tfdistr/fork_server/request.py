"""A request for a fork, while it arrives. No client can make the server wait, or use much memory."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import Any

_SECONDS = 10.0  # in which all of a request must arrive
_LONGEST = 1 << 23  # bytes: an environment has at most some hundred kB
_MOST_FILES = 16
_CHUNK = 1 << 16
_MOST_CORES = 1 << 16
_LISTS = {"argv": str, "files": str, "cores": int}


class ForkRequest:
    """A request while it arrives, in pieces of any size.

    Args:
        client: The connection. It becomes one that never waits.

    Attributes:
        files: The open files that have come with it.
    """

    def __init__(self, client: socket.socket) -> None:
        client.setblocking(False)
        self.client = client
        self.files: list[int] = []
        self._data = bytearray()
        self._until = time.monotonic() + _SECONDS

    @property
    def is_late(self) -> bool:
        """True if the request has not arrived in time."""
        return time.monotonic() > self._until

    def read(self) -> dict[str, Any] | None:
        """Read what has arrived, and return the request if it is complete.

        Raises:
            OSError: The connection is broken.
            ValueError: This is no request: it has another form, is too long, or is incomplete.
        """
        try:
            data, files, _, _ = socket.recv_fds(self.client, _CHUNK, _MOST_FILES)
        except BlockingIOError:
            return None
        self.files += files
        self._data += data
        if not data or len(self._data) > _LONGEST or len(self.files) > _MOST_FILES:
            raise ValueError("no request")
        if not self._data.endswith(b"\n"):
            return None
        try:
            request = json.loads(self._data)
        except RecursionError as error:
            raise ValueError("no request") from error
        if not _is_request(request, len(self.files)):
            raise ValueError("no request")
        return dict(request)

    def close(self) -> None:
        """Close the connection and the files."""
        self.client.close()
        for file in self.files:
            with contextlib.suppress(OSError):
                os.close(file)


def _is_request(value: Any, files: int) -> bool:
    """Return whether a value has the form of a request that comes with so many files; see ``Forked``."""
    if not isinstance(value, dict):
        return False
    argv, names, cores = (_list(value, name, kind) for name, kind in _LISTS.items())
    env = value.get("env")
    return (
        bool(argv)
        and isinstance(env, dict) and all(isinstance(text, str) for text in env.values())
        and names is not None and len(names) + 3 == files
        and cores is not None and all(0 <= core < _MOST_CORES for core in cores)
        and isinstance(value.get("folder"), str)
        and isinstance(value.get("umask"), int) and 0 <= value["umask"] <= 0o777
    )  # fmt: skip


def _list(request: dict[str, Any], name: str, kind: type) -> list[Any] | None:
    """Return a list of values of one type from a request; None if it is something else."""
    value = request.get(name)
    return value if isinstance(value, list) and all(isinstance(item, kind) for item in value) else None

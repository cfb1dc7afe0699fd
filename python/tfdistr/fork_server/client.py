"""The client of a fork server: it requests a process, and follows its changes.

Messages are JSON objects, one on each line; the request carries open files. The guards of workers run this
file by its path, so it uses the standard library only.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

TIMEOUT = 60.0
"""Seconds that a server may take to answer: it may have to import TensorFlow first."""
_CHUNK = 1 << 16
_UTILS = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "utils")
_Lines = runpy.run_path(os.path.join(_UTILS, "log_tail.py"))["LineReader"]
_kill_group = runpy.run_path(os.path.join(_UTILS, "processes.py"))["kill_group"]


class Refused(Exception):
    """A server did not make a process; the message has the reason."""


class Forked:
    """A process that a fork server has forked, with methods as in ``subprocess.Popen``.

    Its standard input is empty. It is in its own process group. The server kills the group when the
    connection of this object ends, for any reason.

    Args:
        argv: The program and its arguments, without the interpreter: "-m MODULE" or a script; in R,
            "-e CODE" or a script.
        env: Its whole environment.
        files: Further open files that it needs, by the environment variable with the number of each file.
    """

    def __init__(
        self,
        server: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        output: int,
        files: Mapping[str, int] | None = None,
    ) -> None:
        self.returncode: int | None = None
        self.server_lost = False
        self._lines = _Lines()
        self._received: list[str] = []
        named = dict(files or {})
        try:
            folder = os.getcwd()
        except FileNotFoundError:
            raise Refused("the working directory of its launcher was removed") from None
        request = {
            "argv": list(argv), "env": dict(env), "folder": folder, "umask": _umask(),
            "cores": sorted(os.sched_getaffinity(0)), "files": list(named),
        }  # fmt: skip
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._connection.settimeout(TIMEOUT)
            self._connection.connect(server)
            if user_of(self._connection) != os.geteuid():  # it would get the environment and open files
                raise OSError(f"the process at {server} is of another user")
            with open(os.devnull, "rb") as empty:
                send_request(self._connection, request, [empty.fileno(), output, output, *named.values()])
            answer = next(self._messages(block=True), None)
        except OSError as error:
            answer = {"refused": f"it does not answer ({error})"}
        except BaseException:
            self._connection.close()
            raise
        if answer is None or "pid" not in answer:
            self._connection.close()
            raise Refused((answer or {}).get("refused", "it ended"))
        self.pid: int = answer["pid"]
        self._connection.settimeout(None)

    def changes(self) -> Iterator[bool | int]:
        """Yield its changes: True if it was stopped, False if it continues; finally its exit status."""
        for message in self._messages(block=True):
            if "exit" in message:
                self.returncode = message["exit"]
                break
            yield message["stopped"]
        else:
            self._lose_server()
        self._connection.close()
        assert self.returncode is not None
        yield self.returncode

    def poll(self) -> int | None:
        """Return its exit status, or minus the signal that killed it; None while it runs."""
        if self.returncode is None:
            for message in self._messages(block=False):
                if "exit" in message:
                    self.returncode = message["exit"]
                    break  # the server closes the connection after that
            if self.returncode is None and self.server_lost:
                self._lose_server()
            if self.returncode is not None:
                self._connection.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it exits; ``subprocess.TimeoutExpired`` if it does not exit in time."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode

    def _lose_server(self) -> None:
        """Record the loss of the server. The kernel kills the process with its server; see child.py."""
        self.server_lost = True
        _kill_group(self.pid, 0.5)
        self.returncode = -signal.SIGKILL

    def _messages(self, *, block: bool) -> Iterator[dict[str, Any]]:
        """Yield the messages of the server, until there is none now or the connection is closed."""
        flags = 0 if block else socket.MSG_DONTWAIT
        while True:
            while self._received:
                yield json.loads(self._received.pop(0))
            try:
                received = self._connection.recv(_CHUNK, flags)
            except BlockingIOError:
                return
            except ConnectionError:
                received = b""
            if not received:
                self.server_lost = True
                return
            self._received += self._lines.take(received)


def fork(server: str, argv: Sequence[str], env: Mapping[str, str], output: IO[bytes]) -> Forked | None:
    """Fork a process; None if the server refuses, with the reason in ``output``: it has to start cold."""
    try:
        return Forked(server, argv, env=env, output=output.fileno())
    except Refused as refused:
        said = f"tfdistr: this process started cold, because of its fork server: {refused}.\n"
        output.write(said.encode())
        return None


def send_request(connection: socket.socket, message: Mapping[str, object], files: Sequence[int] = ()) -> None:
    """Send one message, and open files with it."""
    data = json.dumps(message).encode() + b"\n"
    if files:
        sent = socket.send_fds(connection, [data], files)
        data = data[sent:]
    if data:  # an empty send would fail if a server has refused and closed
        connection.sendall(data)


def user_of(connection: socket.socket) -> int:
    """Return the id of the user whose process is at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask

"""The fork servers of this session: one for each language, and for each environment that counts."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfdistr.launch.loopback import Loopback
from tfdistr.tail import last_lines

from .environment import is_read_at_load, read_at_load

log = logging.getLogger("tfdistr")

MOST = 4
"""How many servers a session has at most; the one that was used least recently makes room."""
_PYTHON = ("-m", "tfdistr.launch.warm.server")
_R = ("-e", "tfdistr:::fork_server()")
_LONGEST = 70  # letters of a folder for temporary files: the name of a socket has at most 107 bytes
_GRACE = 5.0  # seconds that servers have to end
# Of one job or process, and nothing that a server should know.
_NOT_FOR_SERVERS = ("TFDISTR_", "TF_CONFIG", "PMI_", "PMIX_", "OMPI_COMM_", "HYDI_")


@dataclass(frozen=True)
class WarmStart:
    """How to start a process warm.

    Args:
        server: The path of the server's socket.
        argv: The program and its arguments, as ``Forked`` takes them.
    """

    server: str
    argv: tuple[str, ...]


@dataclass(frozen=True)
class _Kind:
    """What must be the same for a server and the processes that it forks."""

    command: tuple[str, ...]
    environment: frozenset[tuple[str, str]]
    loopback: Loopback


class _Server:
    """A fork server, as the session that has started it sees it.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, kind: _Kind, env: Mapping[str, str]) -> None:
        self.folder = _make_folder()
        self.path = str(self.folder / "socket")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(self.path)
                listener.listen(socket.SOMAXCONN)  # who comes while it imports waits
                command = kind.loopback.command([*kind.command, str(self.folder), str(listener.fileno())])
                with open(self.folder / "server.log", "wb") as output:
                    self.process = subprocess.Popen(
                        command,
                        env={**env, "TMPDIR": str(self.folder)},
                        stdin=subprocess.PIPE,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        pass_fds=[listener.fileno(), *kind.loopback.files],
                    )
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def end_soon(self) -> None:
        """Have it end when its forks have ended."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    def is_alive(self) -> bool:
        """Whether it runs. Of one that does not, nothing is left."""
        if self.process.poll() is None:
            return True
        if self.process.returncode:
            said = last_lines(self.folder / "server.log", 1)
            log.warning(
                "The process that forks workers (%d) ended with status %d: %s",
                self.process.pid, self.process.returncode, said[0] if said else "it says nothing",
            )  # fmt: skip
        self._remove()
        return False

    def end(self, until: float) -> None:
        """End it, and with it its forks."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.terminate()  # while it imports, this ends it at once
        try:
            self.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._remove()

    def _remove(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class _Servers:
    """The servers of this process, which those of a process that it was forked from are not."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._present: dict[_Kind, _Server] = {}
        self._ending: list[_Server] = []

    def get(self, kind: _Kind, env: Mapping[str, str]) -> _Server:
        """The server of a kind, which is started if it is not there; OSError if it cannot be."""
        self._forget()
        server = self._present.pop(kind, None) or _Server(kind, env)
        self._present[kind] = server  # the last used is the last one
        while len(self._present) > MOST:
            self._end_soon(next(iter(self._present)))
        return server

    def end_soon(self) -> None:
        """End all, each when its forks have ended."""
        self._forget()
        for kind in list(self._present):
            self._end_soon(kind)
        until = time.monotonic() + _GRACE
        while self._ending and time.monotonic() < until:
            time.sleep(0.02)
            self._forget()

    def end(self) -> None:
        """End all, and their forks, now."""
        self._forget()
        until = time.monotonic() + _GRACE
        for server in [*self._present.values(), *self._ending]:
            server.end(until)
        self._present, self._ending = {}, []

    def _end_soon(self, kind: _Kind) -> None:
        server = self._present.pop(kind)
        server.end_soon()
        self._ending.append(server)

    def _forget(self) -> None:
        """Forget the servers that have ended."""
        if self._owner != os.getpid():
            self._owner, self._present, self._ending = os.getpid(), {}, []
        self._present = {kind: server for kind, server in self._present.items() if server.is_alive()}
        self._ending = [server for server in self._ending if server.is_alive()]


_servers = _Servers()
atexit.register(_servers.end)


def warm_start(command: Sequence[str], env: Mapping[str, str], loopback: Loopback) -> WarmStart | None:
    """How to start ``command`` warm; None if it must be cold. The server is started if it is not there.

    Args:
        command: The program of a worker and its arguments.
        env: Its whole environment.
        loopback: What keeps it from being reached from other machines.
    """
    split = _split(command)
    if sys.platform != "linux" or split is None:
        return None
    server_command, argv = split
    whole = loopback.environment(env)
    kind = _Kind(server_command, frozenset(read_at_load(whole).items()), loopback)
    others = {
        name: value
        for name, value in os.environ.items()
        if not is_read_at_load(name) and not name.startswith(_NOT_FOR_SERVERS)
    }
    try:
        server = _servers.get(kind, {**others, **dict(kind.environment)})
    except OSError as error:
        _warn_once(f"Workers start cold: a process that forks them cannot be started ({error}).")
        return None
    return WarmStart(server.path, argv)


def stop_warm_workers() -> None:
    """End the processes that keep TensorFlow imported for the workers of this session.

    Each ends when the workers that it has forked have ended. The next job starts one again, unless its
    cluster has ``warm=False``.

    Example:
        >>> stop_warm_workers()
    """
    _servers.end_soon()


def _split(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The command of a server for ``command``, and what a fork of it runs; None if none can run it."""
    program, *arguments = command
    flags = []
    if os.path.basename(program) == "Rscript":
        flags = list(itertools.takewhile(lambda word: word.startswith("--"), arguments))
    argv = tuple(arguments[len(flags) :])
    if program == sys.executable and argv and (argv[0] == "-m" or not argv[0].startswith("-")):
        return (program, *_PYTHON), argv
    if program != sys.executable and flags and argv:
        return (program, *flags, *_R), argv
    return None


def _make_folder() -> Path:
    """A folder that only this user can enter, with a name that leaves room for that of a socket."""
    folder = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="tfdistr-warm-", dir=folder if len(folder) < _LONGEST else "/tmp"))


@functools.lru_cache
def _warn_once(message: str) -> None:
    log.warning(message)

"""The fork servers of this session: one for each language and each environment that libraries read."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import logging
import os
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tfdistr.fork_server import remote
from tfdistr.fork_server.child import is_read_at_load, read_at_load
from tfdistr.network.loopback import Loopback
from tfdistr.utils import at_exit
from tfdistr.utils.interrupts import uninterrupted
from tfdistr.utils.log_tail import last_lines
from tfdistr.utils.processes import wait_or_kill
from tfdistr.utils.trusted_files import check_parents

log = logging.getLogger("tfdistr")
T = TypeVar("T")

MOST = 4
"""The most servers of a session on one host; the least recently used server ends to make room."""
_PYTHON = ("-P", "-m", "tfdistr.fork_server.server")
_R = ("-e", "tfdistr:::fork_server()")
_LONGEST = 70  # characters of a temporary folder: the name of a socket has at most 107 bytes
#: An argument without a meaning: a fork writes its command there in the process table.
ROOM = " " * 256
_GRACE = 5.0  # seconds that servers have to exit
_TO_CONNECT = 15.0  # seconds that ssh has to start a server on another host
# Variables of one job or process: a server must not have them.
_NOT_FOR_SERVERS = ("TFDISTR_", "TF_CONFIG", "PMI_", "PMIX_", "OMPI_COMM_", "HYDI_")


@dataclass(frozen=True)
class WarmStart:
    """The warm start of a process: the path of the server's socket, and the ``argv`` of ``Forked``."""

    server: str
    argv: tuple[str, ...]


@dataclass(frozen=True)
class Host:
    """The host of a server, empty for this machine, and the ssh program that reaches it."""

    host: str = ""
    ssh: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Kind:
    """The properties that must be the same for a server and its forks."""

    command: tuple[str, ...]
    environment: frozenset[tuple[str, str]]
    loopback: Loopback
    place: Host


class _ServerProcess:
    """A fork server, from the view of its session."""

    def __init__(self, kind: _Kind, env: Mapping[str, str]) -> None:
        self.place = kind.place
        self._folder: Path | None = None
        self._path = ""
        if kind.place.host:
            self._process = _start_remote(kind, env)
            return
        self._folder = _make_folder()
        self._path = str(self._folder / "socket")
        process: subprocess.Popen[bytes] | None = None
        try:
            with uninterrupted():
                self._process = process = _start_here(kind, env, self._folder)
        except BaseException:
            if process is not None:
                process.kill()
                process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    @property
    def pid(self) -> int:
        """Its process id; for a server on another host, the process id of ssh."""
        return self._process.pid

    def path(self) -> str:
        """Return the path of its socket, on its host."""
        if not self._path:
            assert self._process.stdout is not None
            ready, _, _ = select.select([self._process.stdout], [], [], _TO_CONNECT)
            self._path = os.fsdecode(self._process.stdout.readline()).strip() if ready else ""
            if not self._path:
                self.end(time.monotonic())
                why = "ssh exited" if ready else f"no answer within {_TO_CONNECT:g} s"
                raise OSError(why)
        return self._path

    def end_soon(self) -> None:
        """Ask it to exit when its forks have exited."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"end\n")
            self._process.stdin.flush()

    def is_alive(self) -> bool:
        """Return whether it runs. If not, remove its files."""
        if self._process.poll() is None:
            return True
        self._close()
        if self._folder is not None:
            if self._process.returncode:
                said = last_lines(self._folder / "server.log", 1)
                log.warning(
                    "The fork server (%d) exited with status %d: %s",
                    self._process.pid, self._process.returncode, said[0] if said else "it says nothing",
                )  # fmt: skip
            shutil.rmtree(self._folder, ignore_errors=True)
        return False

    def end(self, until: float) -> None:
        """End it and its forks; kill it if it still runs at the time ``until``."""
        self._close()
        if self._folder is not None:
            self._process.terminate()  # while it imports, this ends it at once
        wait_or_kill(self._process, max(0.0, until - time.monotonic()))
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _close(self) -> None:
        for file in (self._process.stdin, self._process.stdout):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):
                    file.close()


def _start_here(kind: _Kind, env: Mapping[str, str], folder: Path) -> subprocess.Popen[bytes]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(socket.SOMAXCONN)  # clients wait while the server imports
        command = kind.loopback.command([*kind.command, str(folder), str(listener.fileno()), ROOM])
        with open(folder / "server.log", "wb") as output:
            return subprocess.Popen(
                command,
                env={**env, "TMPDIR": str(folder)},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[listener.fileno(), *kind.loopback.files],
            )


def _start_remote(kind: _Kind, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    starter = shlex.join([sys.executable, "-I", "-S", remote.__file__])
    process = subprocess.Popen(
        [*(kind.place.ssh or ("ssh",)), kind.place.host, starter],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    # The variables are not in a command line, which others see.
    start = json.dumps({"command": kind.command, "room": ROOM, "env": dict(env)})
    with contextlib.suppress(BrokenPipeError):  # ssh ended: there will be no path
        process.stdin.write(start.encode() + b"\n")
        process.stdin.flush()
    return process


class _Servers:
    """The fork servers of this process, for use in several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._present: dict[_Kind, _ServerProcess] = {}
        self._ending: list[_ServerProcess] = []

    def get(self, kind: _Kind, env: Mapping[str, str]) -> _ServerProcess:
        """Return the server of a kind. Start it if it does not run; OSError if it cannot be started."""
        with self._lock:
            self._forget()
            server = self._present.pop(kind, None) or _ServerProcess(kind, env)
            self._present[kind] = server  # the most recently used server is the last
            here = [other for other in self._present if other.place == kind.place]
            for other in here[:-MOST]:
                self._end_soon(other)
            return server

    def end_soon(self) -> None:
        """End all servers, each when its forks have exited."""
        with self._lock:
            self._forget()
            for kind in list(self._present):
                self._end_soon(kind)
            until = time.monotonic() + _GRACE
            while self._ending and time.monotonic() < until:
                time.sleep(0.02)
                self._forget()

    def end(self) -> None:
        """End all servers and their forks now."""
        self._forget()
        until = time.monotonic() + _GRACE
        for server in [*self._present.values(), *self._ending]:
            server.end(until)
        self._present, self._ending = {}, []

    def pids(self) -> list[int]:
        """Return the process ids of the servers on this machine."""
        with self._lock:
            self._forget()
            return [server.pid for server in self._present.values() if not server.place.host]

    def _end_soon(self, kind: _Kind) -> None:
        server = self._present.pop(kind)
        server.end_soon()
        self._ending.append(server)

    def _forget(self) -> None:
        """Forget the servers that have exited."""
        self._present = {kind: server for kind, server in self._present.items() if server.is_alive()}
        self._ending = [server for server in self._ending if server.is_alive()]


_servers = _Servers()
at_exit.register(_servers.end)
os.register_at_fork(after_in_child=_servers.__init__)  # type: ignore[misc]  # the parent owns its servers


def warm_start(command: Sequence[str], env: Mapping[str, str], loopback: Loopback) -> WarmStart | None:
    """Return how to start ``command`` warm; None for a cold start. Start the server if it does not run."""
    return warm_starts(command, env, loopback, [Host()])[0]


def warm_starts(
    command: Sequence[str], env: Mapping[str, str], loopback: Loopback, places: Sequence[Host]
) -> list[WarmStart | None]:
    """Return the result of ``warm_start`` for each place."""
    split = _split(command)
    if sys.platform != "linux" or split is None:
        return [None] * len(places)
    server_command, argv = split
    needed = read_at_load(loopback.environment(env))
    others = {
        name: value
        for name, value in os.environ.items()
        if not is_read_at_load(name) and not name.startswith(_NOT_FOR_SERVERS)
    }
    kinds = [_Kind(server_command, frozenset(needed.items()), loopback, place) for place in places]
    # Start all servers before the first wait.
    started = [_attempt(kind.place, _servers.get, kind, {**others, **needed}) for kind in kinds]
    paths = [server and _attempt(server.place, server.path) for server in started]
    return [WarmStart(path, argv) if path else None for path in paths]


def _attempt(place: Host, act: Callable[..., T], *arguments: object) -> T | None:
    """Return the result of ``act``; None, and a warning, if ``act`` raises an OSError."""
    try:
        return act(*arguments)
    except OSError as error:
        where = f" on {place.host}" if place.host else ""
        _warn_once(f"Workers start cold{where}: cannot start the fork server ({error}).")
        return None


def pids() -> list[int]:
    """Return the process ids of this session's servers on this machine."""
    return _servers.pids()


def stop_warm_workers() -> None:
    """End the processes that keep TensorFlow loaded for workers.

    These are the fork servers of this session; the workers are their forks. Each server ends when its workers
    have ended. The next job starts a server again, unless its cluster has ``warm=False``.

    Example:
        >>> stop_warm_workers()
    """
    _servers.end_soon()


def _split(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Split ``command`` into the command of a server and a fork's arguments; None if no server can run it."""
    program, *arguments = command
    flags = []
    if os.path.basename(program) == "Rscript":
        flags = list(itertools.takewhile(lambda word: word.startswith("--"), arguments))
    argv = tuple(arguments[len(flags) :])
    if program == sys.executable:
        argv = argv[1:] if argv[:1] == ("-P",) else argv
        known = argv and (argv[0] == "-m" or not argv[0].startswith("-"))
        return ((program, *_PYTHON), argv) if known else None
    if flags and argv:
        return (program, *flags, *_R), argv
    return None


def _make_folder() -> Path:
    """Create a folder that only this user can enter, with a path short enough for a socket."""
    folder = tempfile.gettempdir()
    check_parents(Path(folder, "tfdistr"), temporary=True)
    return Path(tempfile.mkdtemp(prefix="tfdistr-warm-", dir=folder if len(folder) < _LONGEST else "/tmp"))


@functools.lru_cache
def _warn_once(message: str) -> None:
    log.warning(message)

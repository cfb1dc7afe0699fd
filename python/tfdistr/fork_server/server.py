"""The fork server: it imports what workers need, and forks itself for each of them.

    python -m tfdistr.fork_server.server FOLDER LISTENER

LISTENER is the number of an open socket, whose name is in FOLDER. Standard input is open as long as the
session of the server lives: the server and its forks exit with the session. A line on standard input means
that the session needs no more forks. An R process that has loaded Python calls ``preload()`` and ``serve()``
itself. No client can make the server wait, or use much memory.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import shutil
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from tfdistr.fork_server.child import become, threads, why_unsafe
from tfdistr.fork_server.client import send_request, user_of
from tfdistr.utils.processes import end_with_parent

_SECONDS = 10.0  # in which all of a request must arrive
_LONGEST = 1 << 23  # bytes: an environment has at most some hundred kB
_MOST_FILES = 16
_CHUNK = 1 << 16
_MOST_CORES = 1 << 16
_LISTS = {"argv": str, "files": str, "cores": int}


class ForkRequest:
    """A request while it arrives, in pieces of any size.

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
        """Read what has arrived, and return the request if it is complete."""
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


def _is_request(value: object, files: int) -> bool:
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


def _list(request: dict[str, object], name: str, kind: type) -> list[Any] | None:
    """Return a list of values of one type from a request; None if it is something else."""
    value = request.get(name)
    return value if isinstance(value, list) and all(isinstance(item, kind) for item in value) else None


IDLE = 600.0
"""Seconds without a fork, after which the server exits."""
_POLL_INTERVAL = 1.0  # seconds between two checks of the session
_MOST_REQUESTS = 256  # that may arrive at the same time
_STDIN = 0
# The imports of a worker before its first step. None of them sets up devices. mpi4py is not among them: its
# import would start MPI here, or, without that, would not start MPI in programs that rely on it. Nor is the
# program of a worker, which runs as a script.
_MODULES = (
    "tensorflow", "keras", "tfdistr.training.tasks",
    "tfdistr.strategies.multi_worker_mirrored", "tfdistr.strategies.mirrored", "tfdistr.jobs.result_files",
    "tfdistr.jobs.strategies", "tfdistr.collectives.mpi.world", "tfdistr.supervision.reporting",
    "cloudpickle", "jsonschema",
)  # fmt: skip


def preload(folder: str) -> None:
    """Import what every worker needs, no user module; remove ``folder`` if the session ends meanwhile."""

    def end(*_: object) -> NoReturn:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    end_with_parent(signal.SIGTERM)  # until `serve` checks the parent
    if select.select([_STDIN], [], [], 0)[0]:
        end()  # the session had ended before that
    gc.disable()  # imports make many objects, and no garbage
    for module in _MODULES:
        importlib.import_module(module)
    gc.freeze()  # a fork need not copy objects that the collector would mark
    gc.enable()


def serve(folder: str, listener: int) -> list[str]:
    """Fork this process for each request to ``listener``."""
    server = _ForkServer(folder, socket.socket(fileno=int(listener)))
    try:
        return server.serve()
    finally:
        if os.getpid() == server.pid:  # an error
            shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Serve, and in a fork run the requested program as the interpreter would."""
    preload(sys.argv[1])
    program = serve(sys.argv[1], int(sys.argv[2]))
    if program[0] == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        sys.path.insert(0, os.path.dirname(os.path.abspath(program[0])))
        runpy.run_path(os.path.abspath(program[0]), run_name="__main__")


class _ForkServer:
    """The server with its clients and forks."""

    def __init__(self, folder: str, listener: socket.socket) -> None:
        self.pid = os.getpid()
        self._folder = folder
        self._listener = listener
        self._parent = os.getppid()
        self._clients: dict[int, socket.socket] = {}  # by the fork of each
        self._requests: set[ForkRequest] = set()  # that arrive
        self._ending = False
        self._busy = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._wakeup, self._signals = socket.socketpair()
        for end in (self._wakeup, self._signals):
            end.setblocking(False)

    def serve(self) -> list[str]:
        """Serve until the session ends, or no client sends requests; see ``serve()``."""
        signal.set_wakeup_fd(self._signals.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        end_with_parent(0)  # the kernel watches the parent's thread, which may end before the parent
        self._threads = threads()
        for source in (self._listener, self._wakeup, _STDIN):
            self._selector.register(source, selectors.EVENT_READ)
        while self._clients or not self._ending:
            for key, _ in self._selector.select(_POLL_INTERVAL):
                program = self._take(key)
                if program is not None:
                    return program
            self._reap()
            for request in [request for request in self._requests if request.is_late]:
                self._drop(request)
            now = time.monotonic()
            self._busy = now if self._clients else self._busy
            if now - self._busy > IDLE or os.getppid() != self._parent:
                self._end()
        return self._end()

    def _take(self, key: selectors.SelectorKey) -> list[str] | None:
        """React to one source. Return, in a fork, the program to run."""
        if key.fileobj is self._listener:
            self._accept()
        elif isinstance(key.data, ForkRequest):
            return self._receive(key.data)
        elif key.fileobj is self._wakeup:
            with contextlib.suppress(BlockingIOError):
                self._wakeup.recv(1 << 12)
        elif key.fd == _STDIN:
            if not os.read(_STDIN, 1 << 12):
                self._end()  # the session has exited
            self._ending = True  # the session needs no more forks
        else:  # a client has exited, as clients send nothing more: its process is killed
            self._kill(key.data)
            self._selector.unregister(key.fileobj)
        return None

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # it has exited, or this process has too many files
            return
        if user_of(client) != os.geteuid() or len(self._requests) >= _MOST_REQUESTS:
            client.close()
            return
        request = ForkRequest(client)
        self._requests.add(request)
        self._selector.register(client, selectors.EVENT_READ, request)

    def _receive(self, request: ForkRequest) -> list[str] | None:
        """Read a request further. Return, in a fork, the program to run."""
        try:
            complete = request.read()
        except (OSError, ValueError):
            self._drop(request)
            return None
        if complete is None:
            return None
        self._selector.unregister(request.client)
        self._requests.remove(request)
        return self._fork(request.client, complete, request.files)

    def _drop(self, request: ForkRequest) -> None:
        self._selector.unregister(request.client)
        self._requests.remove(request)
        request.close()

    def _fork(self, client: socket.socket, request: dict[str, object], files: list[int]) -> list[str] | None:
        reason = "the fork server is ending" if self._ending else why_unsafe(self._threads)
        # A fork has the server's function for SIGTERM, which ends all forks, until `become` resets it.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            child = os.fork() if reason is None else -1
        except OSError as error:  # no memory, or too many processes
            reason, child = f"it cannot fork ({error})", -1
        if child == 0:
            self._leave(client)
            return become(request, files, self.pid)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for file in files:
            os.close(file)
        with contextlib.suppress(OSError):  # an exited client is detected by its connection
            if reason is not None:
                send_request(client, {"refused": reason})
            else:
                send_request(client, {"pid": child})
        if reason is not None:
            client.close()
            return None
        with contextlib.suppress(OSError):  # the fork was faster, or has exited
            os.setpgid(child, child)
        self._clients[child] = client
        self._selector.register(client, selectors.EVENT_READ, child)
        return None

    def _leave(self, client: socket.socket) -> None:
        """In a fork: close the sockets of the server."""
        for each in (client, self._listener, self._wakeup, self._signals, *self._clients.values()):
            each.close()
        for request in self._requests:
            request.close()
        self._selector.close()

    def _reap(self) -> None:
        """Report the changes of processes to their clients."""
        for child, client in list(self._clients.items()):
            while (message := self._change_of(child)) is not None:
                with contextlib.suppress(OSError):
                    send_request(client, message)
                if "exit" in message:
                    with contextlib.suppress(KeyError, ValueError):  # a client that exited before
                        self._selector.unregister(client)
                    client.close()
                    del self._clients[child]
                    break

    def _change_of(self, child: int) -> dict[str, object] | None:
        """Return the message about a fork's change since the last call; None if nothing has changed."""
        flags = os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOHANG
        seen = os.waitid(os.P_PID, child, flags | os.WNOWAIT)
        if seen is None:
            return None
        if seen.si_code in (os.CLD_STOPPED, os.CLD_TRAPPED, os.CLD_CONTINUED):
            os.waitid(os.P_PID, child, flags)
            return {"stopped": seen.si_code != os.CLD_CONTINUED}
        self._kill(child)  # the rest of its group, whose number is not reused before the fork is reaped
        os.waitid(os.P_PID, child, flags)
        return {"exit": seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status}

    def _kill(self, child: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)

    def _end(self) -> NoReturn:
        """End the server and all forks."""
        for child in self._clients:
            self._kill(child)
        shutil.rmtree(self._folder, ignore_errors=True)
        os._exit(0)


if __name__ == "__main__":
    main()

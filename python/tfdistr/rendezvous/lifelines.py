"""Connections that stay open while workers train. They carry the message about the first failure.

If a connection ends without a goodbye, a process is lost.

TensorFlow notifies at once only the workers that exchange data with the lost process directly. The other
workers wait for its heartbeat. But the kernel closes the connections of a killed process at once. Here each
worker keeps one connection to the leader, and the leader notifies the other workers. A stopped process
keeps its connections, and so does one whose network is cut: only heartbeats detect it. TensorFlow's servers
send heartbeats; with MPI on several hosts, a process beside each worker does (see ``Heartbeat``).

A worker that fails with an error reports it here as well. Otherwise a slow worker would hear of the failure
after the leader has exited, and would blame the leader: TensorFlow's messages end with the leader's process.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import select
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping

from tfdistr.rendezvous.heartbeat import Heartbeat
from tfdistr.utils.log_tail import LineReader

# Seconds without traffic after which the kernel checks that the other machine is there. The check also keeps
# firewalls from dropping the connection.
_KEEPALIVE = 30
# Heartbeats per timeout after which a process counts as lost.
_BEATS = 5
# The lines: a goodbye, or the message about a failure as a JSON string of at most this many characters.
_GOODBYE, _FAILED = "goodbye", "failed "
_LONGEST = 4000

# Bytes of a read, and of a partial line that is kept.
_READ, _MOST = 1 << 16, 1 << 20


class Lines:
    """A connection that carries lines. What has arrived after a line stays here for the next reader."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self._reader = LineReader(_MOST)
        self._whole: collections.deque[str] = collections.deque()

    def take(self) -> str | None:
        """Return the next line; None if it is not complete."""
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


_all: weakref.WeakSet[Lifelines] = weakref.WeakSet()


class Lifelines:
    """The connections of this process: the leader's to each worker, or another worker's to the leader."""

    def __init__(self, connections: Mapping[str, socket.socket]) -> None:
        #: The connections by the names of their tasks, also for messages before ``watch()``.
        self.lines = {name: Lines(connection) for name, connection in connections.items()}
        self._watched = self._over = False
        self._patience: float | None = None
        self._heartbeat: Heartbeat | None = None
        self._failure: str | None = None
        self._decided = threading.Event()
        self._closing = threading.Lock()
        for connection in self._connections:
            with contextlib.suppress(OSError, AttributeError):  # not every system has both
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE)
        _all.add(self)

    @property
    def _connections(self) -> list[socket.socket]:
        return [lines.connection for lines in self.lines.values()]

    def watch(
        self,
        on_failure: Callable[[str], object],
        of_loss: Callable[[str], str],
        of_silence: Callable[[str], str] | None = None,
        heartbeat_timeout: float | None = None,
    ) -> None:
        """Call ``on_failure(message)`` on a thread, for the first failure or silent task."""
        self._watched, self._patience = True, heartbeat_timeout
        if heartbeat_timeout is not None:
            for connection in self._connections:
                _give_up_after(connection, heartbeat_timeout)
            self._heartbeat = Heartbeat(self._connections, heartbeat_timeout / _BEATS)
        arguments = (on_failure, of_loss, of_silence or of_loss)
        threading.Thread(target=self._watch, args=arguments, name="tfdistr-lifelines", daemon=True).start()

    def tell(self, message: str) -> None:
        if not self._over:
            with self._closing:
                self._send_failure(message)

    def heard(self, seconds: float) -> str | None:
        """Return the message about the first failure. Wait at most ``seconds`` for it."""
        if self._watched:
            self._decided.wait(seconds)
        return self._failure

    def say_goodbye(self) -> None:
        """Tell the others that this process may exit without being lost."""
        if self._over:
            return
        self._over = True
        with self._closing:  # the thread closes all connections as soon as it wakes
            self._stop_heartbeat()
            for connection in self._connections:
                _send(connection, _GOODBYE)
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # it also wakes the thread
        if not self._watched:
            self.close()

    def close(self) -> None:
        """Close the sockets in this process. Without a goodbye, the others consider this process lost."""
        self._over = True
        with self._closing:
            self._stop_heartbeat()
            self._close_sockets()

    def _stop_heartbeat(self) -> None:
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.stop()

    def _close_sockets(self) -> None:
        for connection in self._connections:
            connection.close()

    def _watch(
        self,
        on_failure: Callable[[str], object],
        of_loss: Callable[[str], str],
        of_silence: Callable[[str], str],
    ) -> None:
        message = self._first_failure(of_loss, of_silence)
        if message and not self._over:
            self._send_failure(message)
            self._failure = message
            self._decided.set()
            on_failure(message)  # later ends are a result of this failure
        self._decided.set()
        if self._over:
            self.close()

    def _send_failure(self, message: str) -> None:
        for connection in self._connections:
            _send(connection, _FAILED + json.dumps(message[:_LONGEST]))

    def _first_failure(self, of_loss: Callable[[str], str], of_silence: Callable[[str], str]) -> str:
        """Wait until a task fails, and return the message; "" if no task can fail any more."""
        heard = dict.fromkeys(self.lines, time.monotonic())
        with selectors.DefaultSelector() as selector:
            for name, lines in self.lines.items():
                selector.register(lines.connection, selectors.EVENT_READ, name)
            now, come = time.monotonic(), list(self.lines)  # something may have arrived before
            while selector.get_map() and not self._over:
                for name in come:
                    message, continues = self._hear(name, of_loss, of_silence)
                    heard[name] = time.monotonic()
                    if message:
                        return message
                    if not continues:
                        selector.unregister(self.lines[name].connection)
                        heard.pop(name)
                silent = [name for name, last in heard.items() if now - last > (self._patience or now)]
                if silent:
                    return of_silence(silent[0])
                # Before the wait, because this thread may then wait for Python's lock: the next round first
                # reads what arrived meanwhile.
                now, waits = time.monotonic(), self._patience and self._patience / _BEATS
                come = [key.data for key, _ in selector.select(waits)] if heard else []
        return ""

    def _hear(
        self, name: str, of_loss: Callable[[str], str], of_silence: Callable[[str], str]
    ) -> tuple[str, bool]:
        """Read the lines of a task; return the message about a failure or "", and whether more can come."""
        try:
            while (text := self.lines[name].take()) is not None:
                if text == _GOODBYE:
                    return "", False
                if text.startswith(_FAILED):
                    with contextlib.suppress(ValueError, RecursionError):
                        return str(json.loads(text.removeprefix(_FAILED)))[:_LONGEST], False
        except ConnectionError:  # it has exited, or its machine has restarted
            return of_loss(name), False
        except OSError:  # a cut network does not mean that the process is lost, if there are heartbeats
            return (of_silence(name), False) if self._patience is not None else ("", False)
        return "", True


def _give_up_after(connection: socket.socket, seconds: float) -> None:
    """Make the kernel close a connection whose peer machine has not answered for so long."""
    options = {
        "TCP_KEEPIDLE": max(1, int(seconds / 3)), "TCP_KEEPINTVL": max(1, int(seconds / 6)), "TCP_KEEPCNT": 4,
        "TCP_USER_TIMEOUT": int(1000 * seconds),
    }  # fmt: skip
    for name, value in options.items():
        with contextlib.suppress(OSError, AttributeError):  # not every system has all of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _send(connection: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):  # a process that cannot receive it has exited
        connection.send(f"{text}\n".encode())


def _close_in_child() -> None:
    # Otherwise a fork would keep the connections open after its parent has exited.
    for lifelines in list(_all):
        lifelines._close_sockets()  # a thread that does not exist here may hold the lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)

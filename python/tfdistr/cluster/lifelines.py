"""Connections that stay open while workers train. If one ends without a goodbye, a process is lost.

TensorFlow tells at once only the workers that exchange data with the lost process directly. The other
workers wait for its heartbeat. But the kernel closes the connections of a killed process at once. Here each
worker keeps one connection to the leader, and the leader tells the other workers. A halted process, or a
process whose network is cut, keeps its connections: only the heartbeat finds it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import weakref
from collections.abc import Callable, Mapping

# Seconds without traffic after which the kernel checks that the other machine is there. The check also keeps
# firewalls from dropping the connection.
_KEEPALIVE = 30
_READ = 4096
# The messages: a goodbye, or the message that a task is lost.
_GOODBYE, _LOST = "goodbye", "lost "

_all: weakref.WeakSet[Lifelines] = weakref.WeakSet()


class Lifelines:
    """The lifelines of this process. The leader has one to each worker; the others have one to the leader.

    Args:
        connections: A connected socket for each task, by its name, such as "worker 1".
    """

    def __init__(self, connections: Mapping[str, socket.socket]) -> None:
        self._connections = dict(connections)
        self._unread = dict.fromkeys(self._connections, b"")
        self._watched = self._over = False
        self._closing = threading.Lock()
        for connection in self._connections.values():
            connection.setblocking(False)
            with contextlib.suppress(OSError, AttributeError):  # not every system has both
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE)
        _all.add(self)

    def watch(self, on_loss: Callable[[str], object]) -> None:
        """Call ``on_loss(name)`` on a separate thread, only for the first lost task."""
        self._watched = True
        threading.Thread(target=self._watch, args=(on_loss,), name="tfdistr-lifelines", daemon=True).start()

    def say_goodbye(self) -> None:
        """Tell the others that a later end of this process is not a loss."""
        if self._over:
            return
        self._over = True
        with self._closing:  # the thread closes all connections as soon as it wakes
            for connection in self._connections.values():
                _send(connection, _GOODBYE)
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # it also wakes the thread
        if not self._watched:
            self.close()

    def close(self) -> None:
        """Close the sockets in this process. Without a goodbye, the others consider this process lost."""
        self._over = True
        with self._closing:
            self._close_sockets()

    def _close_sockets(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _watch(self, on_loss: Callable[[str], object]) -> None:
        lost = self._first_loss()
        if lost and not self._over:
            for connection in self._connections.values():
                _send(connection, _LOST + lost)
            on_loss(lost)  # later ends are a result of this loss
        if self._over:
            self.close()

    def _first_loss(self) -> str:
        """Wait until a task is lost, and return its name; "" if no task can be lost any more."""
        with selectors.DefaultSelector() as selector:
            for name, connection in self._connections.items():
                selector.register(connection, selectors.EVENT_READ, name)
            while selector.get_map() and not self._over:
                for key, _ in selector.select():
                    lost, goes_on = self._hear(key.data)
                    if lost:
                        return lost
                    if not goes_on:
                        selector.unregister(key.fileobj)
        return ""

    def _hear(self, name: str) -> tuple[str, bool]:
        """Read the messages of a task.

        Returns:
            The name of the lost task, or "", and whether more messages can come.
        """
        try:
            read = self._connections[name].recv(_READ)
        except BlockingIOError:
            return "", True
        except ConnectionError:  # for example, its machine has started again
            return name, False
        except OSError:  # a cut network does not mean that the process is lost
            return "", False
        if not read:
            return name, False
        *lines, rest = (self._unread[name] + read).split(b"\n")
        self._unread[name] = rest[-_READ:]
        for line in lines:
            text = line.decode(errors="replace")
            if text == _GOODBYE:
                return "", False
            if text.startswith(_LOST):
                return text.removeprefix(_LOST), False
        return "", True


def _send(connection: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):  # a process that cannot receive it is gone itself
        connection.send(f"{text}\n".encode())


def _close_in_child() -> None:
    # Otherwise a forked process would keep the connections open after the end of its parent.
    for lifelines in list(_all):
        lifelines._close_sockets()  # a thread that does not exist here may hold the lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)

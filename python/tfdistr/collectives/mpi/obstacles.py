"""Obstacles to MPI between workers: no room for shared memory, or hosts that cannot connect.

MPICH makes a file in /dev/shm, and writes to it later: on a full disk, SIGBUS then kills the rank. Between
hosts MPI listens on a port of each worker. A firewall, or a host with several networks, may keep others from
it: then MPI would wait forever.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from tfdistr.rendezvous.protocol import absence
from tfdistr.rendezvous.tf_config import join_address
from tfdistr.utils.shared_names import SHARED

_POLL = 0.1  # seconds
_MOST = 1024  # connections to a worker
_AT_ONCE = 32  # connections that a worker makes
_SIOCGIFADDR = 0x8915
# Bytes. MPICH 5.0.2 takes 1,059,392 for each of 2 ranks (a process's mapping in /proc/PID/maps, halved), and
# 2 to 8 ranks start with 1,081,344 for each. UCX takes less if there is no more.
_PER_RANK = 5 << 18
#: The fix if there is no room.
MORE_ROOM = f"Make room in {SHARED} (docker run --shm-size=1g)"


def why_refused() -> str:
    """Return why this process cannot share memory with others; "" if it can."""
    try:
        tempfile.TemporaryFile(dir=SHARED).close()
    except FileNotFoundError:
        return ""  # not on Linux
    except OSError as error:
        return f"it cannot write to {SHARED} ({error.strerror})"
    return ""


def free_room() -> int | None:
    """Return the free bytes for shared memory; None if not known."""
    try:
        disk = os.statvfs(SHARED)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


def too_small(free: int | None, ranks: int) -> str:
    """Return why ``free`` bytes are too few for the ranks of a host; "" if they are enough."""
    needed = ranks * _PER_RANK
    if free is None or free >= needed:
        return ""
    return f"its {SHARED} has {free:,} bytes free, and MPI needs {needed:,} for {ranks} ranks"


class Door(NamedTuple):
    """Address at which others reach a worker."""

    host: str
    port: int
    answer: str

    def __str__(self) -> str:
        return join_address(self.host, self.port)

    @classmethod
    def parse(cls, value: Any) -> Door:
        host, port, answer = value
        if not (isinstance(host, str) and type(port) is int and isinstance(answer, str)):
            raise ValueError("no door")
        return cls(str(ipaddress.ip_address(host)), port, answer)


class OpenDoor:
    """The door of this worker, open until ``close()``: it listens, and answers."""

    def __init__(self, door: Door) -> None:
        family = socket.AF_INET6 if ":" in door.host else socket.AF_INET
        self._answer = f"{door.answer}\n".encode()
        self._listener = socket.create_server((door.host, door.port), family=family, backlog=_MOST)
        self._listener.settimeout(_POLL)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="tfdistr-reach", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the door, so that MPI can listen there."""
        self._over.set()
        self._thread.join()

    def _serve(self) -> None:
        # The others close first. Otherwise the port would stay in use for a minute.
        with contextlib.ExitStack() as open_until_the_end:
            open_until_the_end.enter_context(self._listener)
            come = 0
            while not self._over.is_set():
                with contextlib.suppress(OSError):
                    connection = self._listener.accept()[0]
                    come += 1
                    if come <= _MOST:
                        open_until_the_end.enter_context(connection)
                        connection.setblocking(False)
                        connection.send(self._answer)


def unreached(doors: Mapping[str, Door], timeout: float) -> str:
    """Connect to the doors of other workers, and return why one is unreachable; "" if all are reachable."""
    with ThreadPoolExecutor(_AT_ONCE, "tfdistr-reach") as pool:
        found = pool.map(lambda name: _obstacle(name, doors[name], timeout), doors)
        return next(filter(None, found), "")


def _obstacle(name: str, door: Door, timeout: float) -> str:
    cannot = f"cannot connect to {name} at {door},"
    try:
        with socket.create_connection((door.host, door.port), timeout) as connection:
            answer = connection.makefile("rb").readline(len(door.answer) + 1)
    except OSError as error:
        return f"{cannot} {absence(error)}"
    return "" if answer.strip() == door.answer.encode() else f"{cannot} where another process listens"


def interface(addresses: Sequence[str]) -> tuple[str, str | None]:
    """Return the address by which others reach this host, and its network interface."""
    plain = [address.removeprefix("::ffff:") for address in addresses]
    address = next((each for each in plain if not each.startswith("127.")), plain[0])
    own = {name: found for _, name in socket.if_nameindex() if (found := _address_of(name))}
    wanted = os.environ.get("FI_TCP_IFACE")
    if wanted in own:
        return own[wanted], wanted
    return address, next((name for name, found in own.items() if found == address), None)


def _address_of(interface_name: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked, contextlib.suppress(OSError):
        request = struct.pack("256s", interface_name.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, request)[20:24])
    return None

"""How workers that are about to start reach each other: lines of JSON over the ports of their addresses.

Each connection begins with a line of the side that listens, its greeting: which task it is, in which process,
for whom it waits, and what time it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tfdistr._tf_config import split_address
from tfdistr.errors import ClusterStartError, JobMismatchError, TfdistrError

#: Bytes that a line can have.
LONGEST = 1 << 20
_ANSWER = 2.0  # seconds that a peer may take to answer
_LOOKUP = 10.0  # seconds that a name may take to resolve


@dataclass(frozen=True)
class End:
    """Why the workers cannot start, in a form that can be sent."""

    kind: str
    message: str
    received: str
    fix: str

    @classmethod
    def of(cls, error: TfdistrError) -> End:
        return cls(error.kind, error.message, str(error.received), str(error.fix))

    def error(self) -> TfdistrError:
        made = JobMismatchError if self.kind == JobMismatchError.kind else ClusterStartError
        return made(self.message, received=self.received, fix=self.fix)


def absence(error: OSError) -> str:
    """What it means that nobody can be reached at an address."""
    if isinstance(error, socket.gaierror):
        return "whose name does not resolve"
    if isinstance(error, ConnectionRefusedError):
        return "where nobody listens"
    if isinstance(error, TimeoutError):
        return "which does not answer"
    return f"which cannot be reached ({error.strerror or error})"


def this_process() -> str:
    """This process, as its peers show it."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def send(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    """Send a line."""
    if not writer.is_closing():
        writer.write(json.dumps(message).encode() + b"\n")


async def lookup(host: str, port: int) -> list[Any]:
    """The addresses of a host. A lookup that hangs is left behind: the pool of the loop would wait for it."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Any] = loop.create_future()

    def give(result: Any) -> None:
        if not found.done():
            found.set_result(result)

    def look() -> None:
        try:
            result: Any = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # the latter of a label that is too long
            result = error if isinstance(error, OSError) else socket.gaierror(socket.EAI_NONAME, str(error))
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(give, result)

    threading.Thread(target=look, daemon=True).start()
    async with asyncio.timeout(_LOOKUP):
        result = await found
    if isinstance(result, OSError):
        raise result
    return list(result)


async def greeting_of(address: str) -> tuple[dict[str, Any], asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, and read who it is.

    Raises:
        OSError: Nobody can be reached there.
        ValueError: Something else answers.
    """
    failure: OSError = ConnectionRefusedError()
    for family, _, _, _, place in await lookup(*split_address(address)):
        writer = None
        try:
            async with asyncio.timeout(_ANSWER):
                reader, writer = await asyncio.open_connection(
                    place[0], place[1], family=family, limit=LONGEST
                )
        except OSError as error:
            failure = error
            continue
        try:
            async with asyncio.timeout(_ANSWER):
                greeting = json.loads(await reader.readline())
            if not (isinstance(greeting, dict) and {"task", "id", "waits", "time"} <= set(greeting)):
                raise ValueError("no greeting")
        except BaseException as error:
            writer.close()
            if isinstance(error, OSError):  # it said nothing, or broke off
                raise ValueError("no greeting") from error
            raise
        return greeting, reader, writer
    raise failure


async def tell(tasks: Mapping[str, str], end: End, told: set[str]) -> None:
    """Tell those of the tasks that are there; their names are added to ``told``."""

    async def one(name: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            _, _, writer = await greeting_of(tasks[name])
            send(writer, {"end": asdict(end)})
            await writer.drain()
            writer.close()
            told.add(name)

    await asyncio.gather(*map(one, tasks))


async def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens as TensorFlow's server will, or for a loopback address on that only.

    Raises:
        OSError: The port cannot be had.
    """
    families = {}
    with contextlib.suppress(OSError):  # who cannot resolve its name will not be the only one
        families = {place[0]: family for family, _, _, _, place in await lookup(host, port)}
    local = families and all(ipaddress.ip_address(place.partition("%")[0]).is_loopback for place in families)
    everywhere = bind("::" if socket.has_dualstack_ipv6() else "", port)
    if not local:
        everywhere.listen()
        return everywhere
    everywhere.close()
    place, family = next(iter(families.items()))
    only_here = bind(place, port, family)
    only_here.listen()
    return only_here


def bind(host: str, port: int, family: int | None = None) -> socket.socket:
    """A socket at a port, as soon as those who listened there before have ended.

    Raises:
        OSError: The port cannot be had.
    """
    kind = family if family is not None else socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(kind, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would take the port away from others
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind((host, port))
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made

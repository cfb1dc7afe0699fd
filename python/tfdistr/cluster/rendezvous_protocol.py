"""How workers that are about to start reach each other: lines of JSON over the ports of their addresses.

Each connection begins with a line of the side that listens, its greeting: which task it is, in which process,
for whom it waits, and what time it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import os
import socket
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tfdistr.cluster.tf_config_json import split_address
from tfdistr.errors import ClusterStartError, JobMismatchError, TfdistrError

#: Bytes that a line can have.
LONGEST = 1 << 20
_ANSWER = 2.0  # seconds that a peer may take to answer
_LOOKUP = 10.0  # seconds that a name may take to resolve
#: What to do where another process has the port of a task.
PORT_IN_USE = "Another process has this task's port: end it, or give the task another address."


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


def no_port(error: OSError) -> tuple[str, str]:
    """What it means that this process cannot listen on its port, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return "another process listens on its port", PORT_IN_USE
    if error.errno in (errno.EACCES, errno.EPERM):
        return str(error.strerror), "Give the task a port that this user may listen on."
    return str(error.strerror or error), "Give the task an address and a port that it can listen on."


def says_port_in_use(text: str) -> bool:
    """Whether TensorFlow's error at the start of its server says that another process has the port."""
    return "in use" in text or "Could not start gRPC server" in text


def no_port_error(task: str, found: str, fix: str) -> ClusterStartError:
    """The error of a task that cannot listen on its port."""
    return ClusterStartError(
        "Each task must be able to listen on the port of its address.",
        received=f"{task}: {found}",
        fix=fix,
    )


def absence_error(worker: str, found: str, timeout: float) -> ClusterStartError:
    """The error of a worker that has waited for its peers too long."""
    return ClusterStartError(
        f"The workers of the cluster must find each other within {timeout:g} s.",
        received=f"{worker}: {found}",
        fix="Start every worker of the cluster, with the same TF_CONFIG cluster and its own task, where the "
        "others can reach its address.",
    )


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


async def resolves(address: str) -> bool:
    """Whether the host of an address is known."""
    with contextlib.suppress(OSError):
        return bool(await lookup(*split_address(address)))
    return False


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
            if not _is_greeting(greeting):
                raise ValueError("no greeting")
        except BaseException as error:
            writer.close()
            if isinstance(error, OSError):  # it said nothing, or broke off
                raise ValueError("no greeting") from error
            raise
        return greeting, reader, writer
    raise failure


def _is_greeting(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and all(isinstance(message.get(name), str) for name in ("task", "id"))
        and isinstance(message.get("time"), (int, float))
        and isinstance(message.get("waits"), list)
        and all(isinstance(name, str) for name in message["waits"])
    )


async def tell(tasks: Mapping[str, str], end: End, told: set[str], *, pass_on: bool = False) -> None:
    """Tell those of the tasks that are there; their names are added to ``told``.

    Args:
        tasks: The address of each task, by its name.
        end: What they are told.
        told: The names of those that were told.
        pass_on: Whether they are to tell the others, as if they had found it out themselves.
    """

    async def one(name: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            _, _, writer = await greeting_of(tasks[name])
            send(writer, {"end": asdict(end), "pass_on": pass_on})
            await writer.drain()
            writer.close()
            told.add(name)

    await asyncio.gather(*map(one, tasks))


async def listening_socket(own: str, tasks: Iterable[str]) -> socket.socket:
    """A socket that listens as TensorFlow's server will, or on loopback only where all tasks are there.

    The own name alone does not tell: Debian has a machine resolve its name to 127.0.1.1, others do not.

    Args:
        own: The address of this task.
        tasks: The addresses of all tasks.

    Raises:
        OSError: The port cannot be had.
    """
    host, port = split_address(own)
    local = await _all_on_loopback({host, *(split_address(address)[0] for address in tasks)})
    listens = bind("::" if socket.has_dualstack_ipv6() else "", port)
    if local:
        listens.close()
        family, _, _, _, place = (await lookup(host, port))[0]
        listens = bind(place[0], port, family)
    listens.listen()
    return listens


async def _all_on_loopback(hosts: Iterable[str]) -> bool:
    for one in asyncio.as_completed(map(_on_loopback, hosts)):
        if not await one:
            return False  # whatever the others are, whose lookups may hang
    return True


async def _on_loopback(host: str) -> bool:
    with contextlib.suppress(OSError):  # who cannot resolve a name will not be the only one
        places = [place[0].partition("%")[0] for *_, place in await lookup(host, 0)]
        return all(ipaddress.ip_address(place).is_loopback for place in places)
    return False


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

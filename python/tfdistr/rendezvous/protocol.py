"""The protocol of workers before they start: JSON lines over the ports of their addresses.

Each connection begins with a greeting, a line from the side that listens. It has the task, the process, the
tasks for which this task waits, the time, a number for the proofs of this connection, and whether the process
has a token. If it has, it believes only those that prove that they know the token: see ``Proofs``.

Anybody can connect to these ports. So each message is checked, texts are cut, and the number of threads,
connections and bytes has a limit.
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
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from tfdistr.errors import ClusterStartError, JobMismatchError, TfdistrError
from tfdistr.rendezvous.tf_config import split_address
from tfdistr.rendezvous.token import Proofs

#: Maximum length of a line in bytes.
LONGEST = 1 << 20
_ANSWER = 2.0  # seconds in which a peer must answer
_LOOKUP = 10.0  # seconds for the lookup of a name
_PAUSE = 0.02  # seconds until the next try to get one of the threads
_TEXT = 4000  # characters of a text that a peer has sent
_ID = 200  # characters of the name of a process, or of a task
# A lookup that hangs keeps its thread.
_threads = threading.BoundedSemaphore(32)
_AT_ONCE = 64  # connections to other tasks
T = TypeVar("T")
#: A line of the protocol: a JSON object whose members nobody has checked.
Message = dict[str, Any]
#: The hint if another process has the port of a task.
PORT_IN_USE = "Stop the process that uses this task's port, or give the task another address."


@dataclass(frozen=True)
class MeetingEnd:
    """The reason why the workers cannot start, in a serializable form."""

    kind: str
    message: str
    received: str
    fix: str

    @classmethod
    def of(cls, error: TfdistrError) -> MeetingEnd:
        """Return the reason that an error contains. Its texts may be those of peers."""
        parts = (error.message, str(error.received), str(error.fix))
        return cls(error.kind, *(printable(part, _TEXT) for part in parts))

    @classmethod
    def heard(cls, message: object) -> MeetingEnd:
        names = [field.name for field in fields(cls)]
        if not isinstance(message, dict) or message.keys() != set(names):
            raise ValueError("no end")
        if not all(isinstance(text, str) for text in message.values()):
            raise ValueError("no end")
        return cls(**{name: printable(message[name], _TEXT) for name in names})

    def error(self, reporter: str | None = None) -> TfdistrError:
        """Return the error for the user; texts of ``reporter``, another process, are marked as such."""
        made = JobMismatchError if self.kind == JobMismatchError.kind else ClusterStartError
        if reporter is None:
            return made(self.message, received=self.received, fix=self.fix)
        said = f"{reporter[:1].upper()}{reporter[1:]} reported: {quoted(self.message)}"
        return made(said, received=quoted(self.received), fix=quoted(self.fix))


def parse_message(line: bytes) -> Message:
    """Return the message in a line; ``ValueError`` if there is none."""
    try:
        message = json.loads(line)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if not isinstance(message, dict):
        raise ValueError("no message")
    return message


def printable(text: str, most: int = _ID) -> str:
    """Return a text of a peer without control characters, and at most ``most`` characters of it."""
    cut = text if len(text) <= most else text[: most - 3] + "..."
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in cut)


def quoted(text: str) -> str:
    """Return a text of a peer in quotes. Its further lines are indented, so that none looks like ours."""
    return '"' + text.replace("\n", "\n  ") + '"'


def absence(error: OSError) -> str:
    """Describe the error of a connection to an address."""
    if isinstance(error, socket.gaierror):
        return "whose name does not resolve"
    if isinstance(error, ConnectionRefusedError):
        return "where nobody listens"
    if isinstance(error, TimeoutError):
        return "which does not answer"
    return f"which cannot be reached ({error.strerror or error})"


def no_port(error: OSError) -> tuple[str, str]:
    """Return why this process cannot listen on its port, and the fix for the user."""
    if error.errno == errno.EADDRINUSE:
        return "another process listens on its port", PORT_IN_USE
    if error.errno in (errno.EACCES, errno.EPERM):
        return str(error.strerror), "Give the task a port that this user may listen on."
    return str(error.strerror or error), "Give the task an address and a port that it can listen on."


def says_port_in_use(text: str) -> bool:
    """Return whether TensorFlow's error at the start of its server means that the port is in use."""
    return "in use" in text or "Could not start gRPC server" in text


def no_port_error(task: str, found: str, fix: str) -> ClusterStartError:
    """Return the error of a task that cannot listen on its port."""
    return ClusterStartError(
        "Cannot listen on the port of the task's address.",
        received=f"{task}: {found}",
        fix=fix,
    )


def absence_error(worker: str, found: str, limit: float) -> ClusterStartError:
    """Return the error of a worker that has waited too long for its peers."""
    return ClusterStartError(
        f"Not all workers of the cluster joined within {limit:g} s.",
        received=f"{worker}: {found}",
        fix="Start every worker of the cluster, with the same TF_CONFIG cluster and its own task, where the "
        "others can reach its address.",
    )


def this_process() -> str:
    """Return the name of this process in messages of its peers."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def send(writer: asyncio.StreamWriter, message: Message) -> None:
    """Send a message as one line."""
    if not writer.is_closing():
        writer.write(json.dumps(message).encode() + b"\n")


async def look_up_host(host: str, port: int) -> list[Any]:
    """Look up a host's addresses on a separate thread. The loop's pool would wait for a lookup that hangs."""
    with contextlib.suppress(OSError, UnicodeError):  # an address needs no lookup, and so no thread
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Any] = loop.create_future()

    def give(result: object) -> None:
        if not found.done():
            found.set_result(result)

    def look_up() -> None:
        try:
            result: Any = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: a label is too long
            result = error if isinstance(error, OSError) else socket.gaierror(socket.EAI_NONAME, str(error))
        finally:
            _threads.release()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(give, result)

    async with asyncio.timeout(_LOOKUP):
        while not _threads.acquire(blocking=False):
            await asyncio.sleep(_PAUSE)
        threading.Thread(target=look_up, daemon=True).start()
        result = await found
    if isinstance(result, OSError):
        raise result
    return list(result)


async def resolves(address: str) -> bool:
    """Return whether the host of an address resolves."""
    with contextlib.suppress(OSError):
        return bool(await look_up_host(*split_address(address)))
    return False


async def greeting_of(address: str) -> tuple[Message, asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to an address and read the greeting."""
    failure: OSError = ConnectionRefusedError()
    for family, _, _, _, place in await look_up_host(*split_address(address)):
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
                greeting = parse_message(await reader.readline())
            if not _is_greeting(greeting):
                raise ValueError("no greeting")
        except BaseException as error:
            writer.close()
            if isinstance(error, OSError):  # it sent nothing, or broke the connection
                raise ValueError("no greeting") from error
            raise
        return greeting, reader, writer
    raise failure


def _is_greeting(message: Message) -> bool:
    return (
        all(isinstance(message.get(name), str) for name in ("task", "id"))
        and isinstance(message.get("time"), (int, float))
        and isinstance(message.get("nonce"), str)
        and is_list_of_names(message.get("waits"))
    )


def is_list_of_names(value: object) -> bool:
    """Return whether a part of a message is a list of texts."""
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


async def tell(tasks: Mapping[str, str], end: MeetingEnd, told: set[str], *, pass_on: bool = False) -> None:
    """Send ``end`` to the reachable tasks, and add their names to ``told``."""

    message = {"end": asdict(end), "pass_on": pass_on}

    async def one(name: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            greeting, _, writer = await greeting_of(tasks[name])
            send(writer, {**message, "proof": Proofs().of("end", greeting["nonce"], message)})
            await writer.drain()
            writer.close()
            told.add(name)

    await some_at_once(one, tasks)


async def some_at_once(work: Callable[[str], Awaitable[T]], names: Iterable[str]) -> list[T]:
    """Return ``work(name)`` for each name; only some of them run at the same time."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> T:
        async with places:
            return await work(name)

    return list(await asyncio.gather(*map(one, names)))


async def listening_socket(own: str, tasks: Iterable[str]) -> socket.socket:
    """Open a socket that listens like TensorFlow's server, or only on loopback if all tasks are on loopback.

    The address of this task is not enough for the test: on Debian, a machine resolves its name to 127.0.1.1,
    but other machines do not.
    """
    host, port = split_address(own)
    local = await _all_on_loopback({host, *(split_address(address)[0] for address in tasks)})
    listens = bind("::" if socket.has_dualstack_ipv6() else "", port)
    if local:
        listens.close()
        family, _, _, _, place = (await look_up_host(host, port))[0]
        listens = bind(place[0], port, family)
    listens.listen()
    return listens


async def _all_on_loopback(hosts: Iterable[str]) -> bool:
    for one in asyncio.as_completed(map(_on_loopback, hosts)):
        if not await one:
            return False  # do not wait for the other lookups, which may hang
    return True


async def _on_loopback(host: str) -> bool:
    with contextlib.suppress(OSError):  # a name that does not resolve here is not loopback
        places = [place[0].partition("%")[0] for *_, place in await look_up_host(host, 0)]
        return all(ipaddress.ip_address(place).is_loopback for place in places)
    return False


def bind(host: str, port: int, family: int | None = None) -> socket.socket:
    """Open a socket at a port, as soon as the processes that listened there have exited."""
    kind = family if family is not None else socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(kind, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # on other systems it would take the port from another process
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind((host, port))
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made

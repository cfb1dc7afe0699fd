"""Workers that meet before TensorFlow starts, each a process of its own."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from paths import PROGRAMS

from tfdistr.network.ports import free_ports

PROGRAM = PROGRAMS / "meet.py"
START_FIX = (
    "Fix: Start every worker of the cluster, with the same TF_CONFIG cluster and its own task, where the "
    "others can reach its address."
)

_MARKED = re.compile(r'(\w+: )([^"\n]+) reported: "(.*)"\nReceived: "(.*)"\nFix: "(.*)"', re.DOTALL)


def addresses(count: int) -> dict[str, str]:
    return {f"worker {i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(count))}


@contextmanager
def started(workers: Sequence[dict[str, Any]]) -> Iterator[list[subprocess.Popen[str]]]:
    processes = [
        subprocess.Popen([sys.executable, str(PROGRAM), json.dumps(w)], stdout=subprocess.PIPE, text=True)
        for w in workers
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def connect(address: str, seconds: float = 5) -> socket.socket:
    """Connect to a worker as soon as it listens."""
    host, _, port = address.rpartition(":")
    until = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((host, int(port)), seconds)
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.02)


def reporter(said: str) -> tuple[str | None, str]:
    """Who has reported an error to a worker, if anybody has; and the error without this mark."""
    if (found := _MARKED.fullmatch(said)) is None:
        return None, said
    kind, who, message, received, fix = (part.replace("\n  ", "\n") for part in found.groups())
    return who, f"{kind}{message}\nReceived: {received}\nFix: {fix}"


def outcomes(processes: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """How the workers ended: what they say, and by whom they know it."""
    texts = [process.communicate(timeout=40)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    ends = [json.loads(text) for text in texts]
    return [end | dict(zip(("by", "said"), reporter(end["said"]), strict=True)) for end in ends]


#: What a worker says first to whoever connects to it.
GREETING = {"task": "worker 0", "id": "x", "waits": [], "time": 0.0, "nonce": ""}


@contextmanager
def in_place_of_leader(answer: Callable[[socket.socket], None]) -> Iterator[dict[str, str]]:
    """The addresses of two workers; ``answer`` gets each connection to the first, one after the other."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                with server.accept()[0] as one:
                    answer(one)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield addresses(2) | {"worker 0": f"127.0.0.1:{server.getsockname()[1]}"}
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def message(value: object) -> bytes:
    """A line of the protocol."""
    return json.dumps(value).encode() + b"\n"


@contextmanager
def nobody_listens(addresses: Sequence[str]) -> Iterator[None]:
    """No process of another test listens on these addresses, unless one does so now."""
    with ExitStack() as held:
        for host, _, port in (address.rpartition(":") for address in addresses):
            if host == "127.0.0.1":
                with suppress(OSError):
                    held.enter_context(socket.socket()).bind((host, int(port)))
        yield


def run(tasks: dict[str, str], *which: int, timeout: float = 20, **others: dict[str, Any]) -> list[str]:
    """What the workers say; ``others`` has what is different for one of them."""
    each = [
        {"tasks": tasks, "own": f"worker {i}", "timeout": timeout} | others.get(f"of_{i}", {}) for i in which
    ]
    absent = [address for task, address in tasks.items() if task not in {one["own"] for one in each}]
    with nobody_listens(absent), started(each) as processes:
        return [outcome["said"] for outcome in outcomes(processes)]

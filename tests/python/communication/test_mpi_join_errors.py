"""What keeps a process from becoming a rank, without MPI: the library and the other workers are made up."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tfdistr.communication import mpi_join
from tfdistr.communication.mpi_join import Joining
from tfdistr.errors import ClusterStartError

TASKS = {"worker 0": "a:1", "worker 1": "b:1"}
NODE = b"mpi node here MPICH\n"


class Library:
    version = "MPICH"

    def __init__(self, code: int = 0, seconds: float = 0.0) -> None:
        self._code, self._seconds = code, seconds

    def initialize(self) -> int:
        time.sleep(self._seconds)
        return self._code

    def world(self) -> str:
        return "all ranks"


@pytest.fixture
def peer() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of the connection between the leader and worker 1."""
    ours, other = socket.socketpair()
    ours.setblocking(False)
    with ours, other:
        yield ours, other


def begin(peer: Any, library: Library, monkeypatch: pytest.MonkeyPatch, timeout: float = 0.5) -> Joining:
    monkeypatch.setattr(mpi_join, "_load", lambda: library)
    lifelines: Any = SimpleNamespace(connections={"worker 1": Connection(peer[0])})
    return Joining(lifelines, TASKS, "worker 0", timeout)


class Connection:
    """A connection of the rendezvous, with an address."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def received(act: Callable[[], object]) -> str:
    with pytest.raises(ClusterStartError, match="must become the ranks of one MPI") as caught:
        act()
    return str(caught.value.received)


def test_a_worker_that_says_nothing(peer, monkeypatch):
    joining = begin(peer, Library(), monkeypatch)
    assert received(joining.start) == "worker 0: worker 1 (b:1) has not come within 0.5 s"


def test_a_worker_that_has_ended(peer, monkeypatch):
    joining = begin(peer, Library(), monkeypatch)
    peer[1].close()
    assert received(joining.start) == "worker 0: worker 1 (b:1) has ended"


def test_mpi_that_does_not_start(peer, monkeypatch):
    peer[1].send(NODE)
    joining = begin(peer, Library(15), monkeypatch)
    assert received(joining.start) == "worker 0: MPI_Init has failed with the code 15"


def test_mpi_that_takes_too_long(peer, monkeypatch):
    peer[1].send(NODE)
    joining = begin(peer, Library(seconds=5.0), monkeypatch)
    assert received(joining.start) == "worker 0: MPI has not started within 0.5 s"


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "worker 1 has ended"),
        (b"hello \x1b\n", r"worker 1 has sent a line that is not one of the start: hello \x1b"),
        (b"mpi pmi cmd=spawn\n", "worker 1 has sent the command 'spawn'"),
    ],
    ids=["nothing", "no line of the start", "no command of PMI"],
)
def test_a_worker_that_is_lost_or_wrong_while_mpi_starts(peer, monkeypatch, sent, why):
    peer[1].send(NODE)

    def later() -> None:
        time.sleep(0.2)
        peer[1].send(sent) if sent else peer[1].close()

    threading.Thread(target=later).start()
    joining = begin(peer, Library(seconds=10.0), monkeypatch, timeout=8.0)
    began = time.monotonic()
    assert received(joining.start) == f"worker 0: {why}"
    assert time.monotonic() - began < 5


def test_a_worker_that_never_communicates(peer, monkeypatch):
    peer[1].send(NODE)
    joining = begin(peer, Library(), monkeypatch)
    assert joining.start() == "all ranks"
    assert received(joining.finish) == "worker 0: not all have communicated within 0.5 s"


def mpi(version: str, running: bool = False) -> SimpleNamespace:
    return SimpleNamespace(Is_initialized=lambda: running, Get_library_version=lambda: version)


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (mpi("MPICH", running=True), "a process in which MPI runs already, or has run"),
        (mpi("MPICH"), "a library that this process does not show"),
    ],
    ids=["runs already", "no file"],
)
def test_a_library_that_cannot_be_used(monkeypatch, module, why):
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(rc=SimpleNamespace(), MPI=module))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", module)
    monkeypatch.setattr(mpi_join, "Path", lambda path: SimpleNamespace(read_text=lambda: "", name=""))
    with pytest.raises(ClusterStartError) as caught:
        mpi_join._load()
    assert caught.value.received == why


def test_only_mpich_starts_without_its_launcher(monkeypatch):
    module = mpi("Open MPI v5.0.8")
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(rc=SimpleNamespace(), MPI=module))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", module)
    monkeypatch.setattr(mpi_join, "_path", lambda: None)  # the symbols of this process
    with pytest.raises(ClusterStartError) as caught:
        mpi_join._load()
    assert caught.value.received == "Open MPI v5.0.8; only MPICH starts without its launcher"

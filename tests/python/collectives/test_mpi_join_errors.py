"""What keeps a process from becoming a rank, without MPI: the library and the other workers are made up."""

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tfdistr.collectives.mpi import agreement
from tfdistr.collectives.mpi.agreement import MpiAgreement, Talks
from tfdistr.collectives.mpi.joining import Joining
from tfdistr.collectives.mpi.obstacles import Door, OpenDoor
from tfdistr.collectives.mpi.world import MpiLibrary
from tfdistr.errors import ClusterStartError
from tfdistr.network.ports import free_ports
from tfdistr.rendezvous.lifelines import Lines


def says(
    node: str = "here", library: str = "MPICH", obstacle: str = "", door: object = ("127.0.0.1", 1, "x"),
    free: object = None,
) -> bytes:  # fmt: skip
    """The line of a worker about itself."""
    return f"mpi self {json.dumps([node, library, obstacle, door, free])}\n".encode()


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


def talks(peer: Any, timeout: float = 0.5, own: str = "worker 0") -> Talks:
    port = free_ports(1)[0]
    other = "worker 1" if own == "worker 0" else "worker 0"
    lifelines: Any = SimpleNamespace(lines={other: Lines(Connection(peer[0]))})
    tasks = {"worker 0": f"a:{port}", "worker 1": f"b:{port}"}
    return Talks(lifelines, tasks, own, timeout)


def begin(peer: Any, library: Library, timeout: float = 0.5) -> Joining:
    made: Any = library
    return Joining(talks(peer, timeout), MpiAgreement("", [0, 0]), made, timeout)


class Connection:
    """A connection of the rendezvous, with an address."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def received(act: Callable[[], object]) -> str:
    with pytest.raises(ClusterStartError, match="cannot become the ranks of one MPI") as caught:
        act()
    return str(caught.value.received)


@contextlib.contextmanager
def open_door() -> Iterator[Door]:
    door = Door("127.0.0.1", free_ports(1)[0], "this one")
    opened = OpenDoor(door)
    yield door
    opened.close()


def obstacle(peer: Any, sent: bytes, own: str = "") -> str:
    """Why the leader and a worker that has sent this cannot be ranks."""
    peer[1].send(sent)
    return talks(peer).agree("MPICH", own).obstacle


def test_a_worker_that_says_nothing(peer):
    asked = talks(peer)
    name = f"worker 1 ({asked.tasks['worker 1']})"
    assert received(lambda: asked.agree("MPICH", "")) == f"worker 0: {name} has not joined within 0.5 s"


def test_a_worker_that_has_ended(peer):
    asked = talks(peer)
    peer[1].close()
    assert received(lambda: asked.agree("MPICH", "")).endswith(") has exited")


@pytest.mark.parametrize(
    "line",
    [b"hello\n", b"mpi self 1\n", b"mpi self [1, 2, 3, 4]\n", b"mpi self " + b"[" * 9000 + b"\n",
     b"x" * (1 << 16) + b"\n",
     says(door=("a name", 1, "x")), says(door=("127.0.0.1", "1", "x")), says(door=3), says(free="much")],
    ids=["other words", "a number", "numbers", "deep", "long", "a name", "a port as text", "no door",
         "no bytes"],
)  # fmt: skip
def test_garbage_instead_of_a_start(peer, line):
    peer[1].send(line)
    asked = talks(peer)
    assert "has sent an unknown line" in received(lambda: asked.agree("MPICH", ""))
    assert b"mpi end worker 0: " in peer[1].recv(1 << 16)  # the worker hears of it


def test_all_hear_what_keeps_one_from_being_a_rank(peer):
    why = "worker 1: no mpi4py \\x1b"
    assert obstacle(peer, says(obstacle="no mpi4py \x1b")) == why
    assert json.loads(peer[1].recv(1 << 16).removeprefix(b"mpi result ")) == [why, [0, 1]]


@pytest.mark.parametrize(("free", "enough"), [(1_310_719, False), (1_310_720, True)])
def test_memory_is_needed_for_the_ranks_of_a_host(peer, free, enough):
    few = f"worker 1: its /dev/shm has {free:,} bytes free, and MPI needs 1,310,720 for 1 ranks"
    why = obstacle(peer, says(free=free, library="other"))
    assert why == ("worker 0 has MPICH and worker 1 has other" if enough else few)


def test_the_leader_itself_can_be_the_obstacle(peer):
    assert obstacle(peer, says(), own="no mpi4py") == "worker 0: no mpi4py"


def test_workers_of_one_node_do_not_look_for_each_other(peer):
    assert obstacle(peer, says(node=agreement.node())) == ""


def test_a_worker_that_the_leader_does_not_reach(peer):
    port = free_ports(1)[0]
    peer[1].send(says(door=("127.0.0.1", port, "x")) + b"mpi reached \n")
    why = f"worker 0 cannot connect to worker 1 at 127.0.0.1:{port}, where nobody listens"
    assert talks(peer).agree("MPICH", "").obstacle == why


def test_a_worker_that_does_not_reach_the_leader(peer):
    with open_door() as door:
        peer[1].send(says(door=tuple(door)) + b"mpi reached worker 1 cannot connect\n")
        assert talks(peer).agree("MPICH", "").obstacle == "worker 1 cannot connect"


def test_a_port_that_is_taken(peer):
    peer[1].send(says())
    asked = talks(peer)
    with socket.create_server(("127.0.0.1", asked.door.port)):
        why = f"worker 0: it cannot listen at 127.0.0.1:{asked.door.port} (Address already in use)"
        assert asked.agree("MPICH", "").obstacle == why


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"mpi end worker 0: no more\n", "worker 1: worker 0: no more"),
        (b"mpi result [1, 2]\n", "has sent an unknown line"),
        (b'mpi result ["", [0]]\n', "has sent an unknown line"),
        (b'mpi doors [[], ["a", "b"]]\n', "has sent an unknown line"),
    ],
)
def test_what_a_worker_hears_from_the_leader(peer, line, why):
    peer[1].send(line)
    asked = talks(peer, own="worker 1")
    assert why in received(lambda: asked.agree("MPICH", ""))


@pytest.mark.parametrize(
    ("library", "why"),
    [(Library(15), "MPI_Init failed with code 15"),
     (Library(seconds=5.0), "MPI did not start within 0.5 s")],
)  # fmt: skip
def test_mpi_that_does_not_start(peer, library, why):
    assert received(begin(peer, library).start) == f"worker 0: {why}"


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "worker 1 has exited"),
        (b"hello \x1b\n", r"worker 1 has sent an unknown line: hello \x1b"),
        (b"mpi pmi cmd=spawn\n", "worker 1 has sent the command 'spawn'"),
    ],
    ids=["nothing", "no line of the start", "no command of PMI"],
)
def test_a_worker_that_is_lost_or_wrong_while_mpi_starts(peer, sent, why):
    def later() -> None:
        time.sleep(0.2)
        peer[1].send(sent) if sent else peer[1].close()

    threading.Thread(target=later).start()
    joining = begin(peer, Library(seconds=10.0), timeout=8.0)
    began = time.monotonic()
    assert received(joining.start) == f"worker 0: {why}"
    assert time.monotonic() - began < 5


def test_a_worker_that_never_communicates(peer):
    joining = begin(peer, Library())
    assert joining.start() == "all ranks"
    assert received(joining.finish) == "worker 0: not all communicated within 0.5 s"


@pytest.mark.parametrize(
    ("version", "running", "why"),
    [
        ("MPICH", True, "a process in which MPI runs or has run"),
        ("Open MPI v5.0.8", False, "Open MPI v5.0.8; only MPICH starts without its launcher"),
    ],
)
def test_only_mpich_starts_without_its_launcher_and_only_once(monkeypatch, version, running, why):
    module = SimpleNamespace(Is_initialized=lambda: running, Get_library_version=lambda: version)
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(rc=SimpleNamespace(), MPI=module))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", module)
    with pytest.raises(ClusterStartError) as caught:
        MpiLibrary()
    assert caught.value.received == why

"""Processes that have met at the rendezvous become the ranks of one MPI, without a launcher of MPI.

The leader serves PMI-1 (``PmiServer``) over the connections of the rendezvous. Each process hands the lines
of its MPI on to the leader. ``MPI_Init`` blocks, so it runs on a separate thread, and is called without
mpi4py, which would keep Python's lock meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import socket
import struct
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tfdistr._utils import at_exit
from tfdistr.cluster.lifelines import Lifelines
from tfdistr.cluster.rendezvous_protocol import printable
from tfdistr.communication.mpi_world import no_mpi
from tfdistr.communication.pmi import LONGEST, PmiError, PmiServer
from tfdistr.errors import ClusterStartError

_POLL = 0.1  # seconds
# The lines of this exchange: where a process runs, the start, a line of PMI, and the end.
_NODE, _START, _PMI, _DONE, _END = "mpi node ", "mpi start ", "mpi pmi ", "mpi done", "mpi end "
_THREAD_MULTIPLE = 3
_SIOCGIFADDR = 0x8915
# Between hosts, UCX's packets of 4 MB and more take longer over Ethernet than those of libfabric. On one
# host, libfabric leaves files in /dev/shm if a rank is killed.
_BETWEEN_HOSTS = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
_ON_ONE_HOST = {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "self,sm"}


class _Lines:
    """A socket of which single lines are read: what comes after a line stays in the socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self) -> str | None:
        """Return a line; None if it has not come whole.

        Raises:
            OSError: The connection has ended, or the line is too long.
        """
        try:
            begun = self._connection.recv(LONGEST, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        end = begun.find(b"\n") + 1
        if not begun or (not end and len(begun) == LONGEST):
            raise ConnectionAbortedError("no line")
        if not end:
            time.sleep(0.001)  # select would return at once
            return None
        return self._connection.recv(end)[:-1].decode(errors="replace")

    def send(self, line: str) -> None:
        left = memoryview(f"{line}\n".encode())
        while left:
            try:
                left = left[self._connection.send(left) :]
            except BlockingIOError:
                select.select([], [self._connection], [], _POLL)


class Joining:
    """This process on its way to become a rank. ``finish()`` follows when all ranks have communicated.

    Args:
        lifelines: The connections of the rendezvous, which nobody reads meanwhile.
        tasks: The addresses of the workers in order, by their names such as "worker 0".
        own: The name of this worker.
        timeout: Seconds to wait.
    """

    def __init__(self, lifelines: Lifelines, tasks: Mapping[str, str], own: str, timeout: float) -> None:
        self._tasks, self._rank, self._timeout = dict(tasks), list(tasks).index(own), timeout
        ranks = {name: rank for rank, name in enumerate(tasks)}
        self._peers = {ranks[name]: _Lines(socket) for name, socket in lifelines.connections.items()}
        self._addresses = [socket.getsockname()[0] for socket in lifelines.connections.values()]
        self._ours, self._of_mpi = socket.socketpair()
        self._local, self._waking = _Lines(self._ours), socket.socketpair()
        self._failure: str | None = None
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="tfdistr-pmi", daemon=True)

    def start(self) -> Any:
        """Start MPI together with the others, and return the communicator of all ranks.

        Raises:
            ClusterStartError: A worker has no MPI or another one, or was lost, or MPI did not start in time.
        """
        try:
            library = _load()
        except ClusterStartError as error:
            self._tell(str(error.received))
            raise
        until = time.monotonic() + self._timeout
        nodes = self._agree(f"{_place()} {library.version}", until)
        environment = {
            "PMI_FD": str(self._of_mpi.fileno()), "PMI_RANK": str(self._rank),
            "PMI_SIZE": str(len(self._tasks)),
            **(_ON_ONE_HOST if nodes == 1 else {**_BETWEEN_HOSTS, **_interface(self._addresses)}),
        }  # fmt: skip
        self._thread.start()
        started: list[int] = []
        with _environment(environment):
            calls = threading.Thread(target=lambda: started.append(library.initialize()), daemon=True)
            calls.start()
            while calls.is_alive() and self._failure is None and time.monotonic() < until:
                calls.join(_POLL)
        if not started or started[0] != 0:
            why = self._failure or f"MPI has not started within {self._timeout:g} s"
            raise self._error(why if not started else f"MPI_Init has failed with the code {started[0]}")
        return library.world()

    def finish(self) -> None:
        """Wait until no rank needs the leader any more. All ranks must have communicated with each other."""
        self._finished = True
        self._waking[1].send(b"!")
        self._thread.join(self._timeout)
        if self._failure is not None or self._thread.is_alive():
            raise self._error(self._failure or f"not all have communicated within {self._timeout:g} s")
        # The library says goodbye when the process exits, and waits for an answer. Then nobody serves it, and
        # Python has closed its sockets.
        at_exit.register(partial(self._local.send, "cmd=finalize_ack"))
        os.dup(self._ours.fileno())
        self._of_mpi.detach()

    def end(self) -> None:
        """End MPI, when all ranks have come to their end. No rank needs the others for it."""
        alone = PmiServer("", [0])

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    select.select([self._local], [], [])
                    if (line := self._local.read()) is not None:
                        self._local.send(alone.answer(0, line)[0])

        threading.Thread(target=answer, name="tfdistr-pmi", daemon=True).start()
        _Library.finalize()

    def _error(self, why: str) -> ClusterStartError:
        return ClusterStartError(
            "The workers must become the ranks of one MPI.",
            received=f"worker {self._rank}: {why}",
            fix="Install the same mpich on each host, open the firewall between them, or pass "
            'communication="ring".',
        )

    def _agree(self, own: str, until: float) -> int:
        """Tell the leader where this process runs, and return on how many nodes all of them run."""
        if self._rank != 0:
            self._peers[0].send(_NODE + own)
            return int(self._expect(0, _START, until))
        places = {0: own, **{rank: self._expect(rank, _NODE, until) for rank in self._peers}}
        known: dict[str, int] = {}
        libraries = {place.partition(" ")[2]: rank for rank, place in sorted(places.items(), reverse=True)}
        nodes = [
            known.setdefault(places[rank].partition(" ")[0], len(known)) for rank in range(len(self._tasks))
        ]
        why = ""
        if len(libraries) > 1:
            why = " and ".join(f"worker {rank} has {printable(name)}" for name, rank in libraries.items())
        if why:
            self._tell(why)
            raise self._error(why)
        for peer in self._peers.values():
            peer.send(f"{_START}{len(known)}")
        self._server = PmiServer(f"tfdistr-{uuid.uuid4().hex}", nodes)
        return len(known)

    def _tell(self, why: str) -> None:
        """Tell the peers why there is no MPI."""
        for peer in self._peers.values():
            with contextlib.suppress(OSError):
                peer.send(f"{_END}worker {self._rank}: {why}")

    def _expect(self, rank: int, kind: str, until: float) -> str:
        """Wait for a line of this kind from a rank, and return the rest of it."""
        peer, name = self._peers[rank], f"{list(self._tasks)[rank]} ({list(self._tasks.values())[rank]})"
        try:
            while time.monotonic() < until:
                select.select([peer], [], [], _POLL)
                line = peer.read()
                if line is None:
                    continue
                if line.startswith(kind):
                    return line.removeprefix(kind)
                if line.startswith(_END):
                    raise self._error(printable(line.removeprefix(_END)))
                raise self._error(f"{name} has sent a line that belongs to no start")
        except OSError as error:
            raise self._error(f"{name} has ended") from error
        raise self._error(f"{name} has not come within {self._timeout:g} s")

    def _run(self) -> None:
        try:
            (self._serve if self._rank == 0 else self._pass_on)()
        except PmiError as error:
            self._failure = self._failure or str(error)
        except OSError:
            self._failure = self._failure or "worker 0 has ended"

    def _pass_on(self) -> None:
        """Hand on the lines between MPI and the leader, until this rank needs no more."""
        leader = self._peers[0]
        while not self._finished:
            ready = _readable(leader, self._local, self._waking[0])
            if self._local in ready and (line := self._local.read()) is not None:
                leader.send(_PMI + line)
            if leader in ready and (line := leader.read()) is not None:
                if not line.startswith(_PMI):
                    raise PmiError(f"the leader says: {printable(line.removeprefix(_END))}")
                self._local.send(line.removeprefix(_PMI))
        leader.send(_DONE)

    def _serve(self) -> None:
        """Answer the lines of all ranks, until all are done."""
        left = dict(self._peers)
        while left or not self._finished:
            ready = _readable(*left.values(), self._local, *([] if self._finished else [self._waking[0]]))
            for rank, peer in [(0, self._local), *left.items()]:
                if peer not in ready:
                    continue
                try:
                    if (line := peer.read()) is None:
                        continue
                    if line == _DONE:
                        del left[rank]
                        continue
                    if rank and not line.startswith(_PMI):
                        raise PmiError(f"a line that is not one of the start: {printable(line)}")
                    for to, answer in self._server.answer(rank, line.removeprefix(_PMI)).items():
                        self._peers[to].send(_PMI + answer) if to else self._local.send(answer)
                except (OSError, PmiError) as error:
                    what = f"has sent {error}" if isinstance(error, PmiError) else "has ended"
                    self._failure = f"worker {rank} {what}"
                    for other in left.values():
                        with contextlib.suppress(OSError):
                            other.send(_END + self._failure)
                    raise


def _readable(*connections: _Lines | socket.socket) -> list[_Lines | socket.socket]:
    """Return the connections with something to read; wait for it, but not long."""
    return select.select(connections, [], [], _POLL)[0]


class _Library:
    """The MPI library of mpi4py, called without Python's lock."""

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        self.version = " ".join(mpi.Get_library_version().splitlines()[0].split()).strip("\0")
        self._calls = ctypes.CDLL(_path())

    def initialize(self) -> int:
        """Start MPI, and return its error code."""
        return int(self._calls.MPI_Init_thread(None, None, _THREAD_MULTIPLE, ctypes.byref(ctypes.c_int())))

    @staticmethod
    def finalize() -> None:
        """End MPI."""
        ctypes.CDLL(_path()).MPI_Finalize()

    def world(self) -> Any:
        """The communicator of all ranks, whose errors are exceptions."""
        for comm in (self._mpi.COMM_WORLD, self._mpi.COMM_SELF):
            comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        return self._mpi.COMM_WORLD


def _load() -> _Library:
    """Load the MPI library, without starting it.

    Raises:
        ClusterStartError: There is none, or not MPICH.
    """
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.initialize = mpi4py.rc.finalize = False  # after a failure there is no orderly end
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise no_mpi(str(error).splitlines()[0]) from error
    if MPI.Is_initialized():
        raise ClusterStartError(
            "MPI starts only once in a process.",
            received="a process in which MPI runs already, or has run",
            fix='Start the process again, or pass communication="ring".',
        )
    library = _Library(MPI)
    if "MPICH" not in library.version:
        raise no_mpi(f"{library.version}; only MPICH starts without its launcher")
    return library


def _path() -> str:
    """The file of the MPI library that mpi4py has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        file = line.split(maxsplit=5)[-1]
        if Path(file).name.startswith("libmpi.so"):
            return file
    raise no_mpi("a library that this process does not show")


def _place() -> str:
    """Identify the memory that the processes of this host share."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}-{os.stat('/dev/shm').st_dev}"


def _interface(addresses: Sequence[str]) -> dict[str, str]:
    """Name the network interface by which this process reaches the others, for libfabric."""
    plain = [address.removeprefix("::ffff:") for address in addresses]
    address = next((each for each in plain if not each.startswith("127.")), plain[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                found = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == address:
                    return {"FI_TCP_IFACE": name}
    return {}


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables that the user has not set, and remove those that only say which rank this is."""
    given = {name: v for name, v in values.items() if name.startswith("PMI_") or name not in os.environ}
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            del os.environ[name]


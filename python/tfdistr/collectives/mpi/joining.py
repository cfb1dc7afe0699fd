"""The start of MPI without an MPI launcher: joined processes become its ranks.

An MPICH process finds the other ranks through a manager, to which it has a connection (the environment
variable PMI_FD). It writes its addresses under keys, waits until all have done so, and reads those of the
others. Here the leader is this manager: it serves PMI-1 (``PmiServer``) over the connections of the
rendezvous, and each process forwards the lines of its MPI to it. ``MPI_Init`` blocks, so it runs on a
separate thread. It is called without mpi4py, which would hold Python's lock meanwhile.

Source: "PMI version 1.1 message protocol" (MPICH, src/pmi/maint/pmi-1.1.txt), and Flux RFC 13.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from tfdistr.collectives.mpi.agreement import END, MpiAgreement, Talks
from tfdistr.collectives.mpi.world import MpiLibrary
from tfdistr.rendezvous.lifelines import Lines, ready
from tfdistr.rendezvous.protocol import printable
from tfdistr.utils import at_exit
from tfdistr.utils.shared_names import START, folder_of_start, job_of_start, remove_names

#: The largest number of keys of a rank: MPI needs no more.
_KEYS = 256
_LONGEST_KEY, _LONGEST_VALUE = 64, 2048
_MAPPING = "PMI_process_mapping"


class PmiError(ValueError):
    """A line that no MPI rank would send."""


class PmiServer:
    """The manager of the ranks of one MPI job. It knows nothing of connections.

    Args:
        name: The name of the job. Ranks make names of shared memory from it, so each start needs another.
        nodes: For each rank, the number of its node. The ranks of a node share memory.
    """

    def __init__(self, name: str, nodes: Sequence[int]) -> None:
        self._size = len(nodes)
        self._values = {_MAPPING: process_mapping(nodes)}
        self._keys = [0] * self._size
        self._waiting: set[int] = set()
        self._replies = {
            "get_maxes": f"cmd=maxes kvsname_max=256 keylen_max={_LONGEST_KEY} vallen_max={_LONGEST_VALUE}",
            "get_appnum": "cmd=appnum appnum=0",
            "get_universe_size": f"cmd=universe_size size={self._size}",
            "get_my_kvsname": f"cmd=my_kvsname kvsname={name}",
            "finalize": "cmd=finalize_ack",
        }

    def answer(self, rank: int, line: str) -> dict[int, str]:
        """Return the lines to send after a line of a rank: for each rank that gets one, its line."""
        words = parse_words(line)
        command = words["cmd"]
        if command == "barrier_in":
            self._waiting.add(rank)
            if len(self._waiting) < self._size:
                return {}
            self._waiting.clear()
            return dict.fromkeys(range(self._size), "cmd=barrier_out")
        return {rank: self._reply(rank, command, words)}

    def _reply(self, rank: int, command: str, words: dict[str, str]) -> str:
        key, value = words.get("key", ""), words.get("value", "")
        if command == "init":
            rc = 0 if words.get("pmi_version") == "1" else -1
            return f"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={rc}"
        if command == "put":
            self._keys[rank] += 1
            if not 0 < len(key) <= _LONGEST_KEY or len(value) > _LONGEST_VALUE or self._keys[rank] > _KEYS:
                raise PmiError("a key that is too long, or too many of them")
            self._values[key] = value
            return "cmd=put_result rc=0 msg=success"
        if command == "get":
            if key not in self._values:
                return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
            return f"cmd=get_result rc=0 msg=success value={self._values[key]}"
        if command not in self._replies:
            raise PmiError(f"the command {command!r}")
        return self._replies[command]


def parse_words(line: str) -> dict[str, str]:
    """Return the words of a line by their names; its value comes last, and may have spaces."""
    head, is_put, value = line.strip().partition(" value=")
    words = dict(word.split("=", 1) for word in head.split() if "=" in word)
    if "cmd" not in words:
        raise PmiError("no command")
    return {**words, "value": value} if is_put else words


def process_mapping(nodes: Sequence[int]) -> str:
    """Describe the ranks of each node: blocks of a node, the number of nodes, and of ranks on each."""
    blocks = "".join(f",({node},1,{len(list(ranks))})" for node, ranks in groupby(nodes))
    return f"(vector{blocks})"


_POLL = 0.1  # seconds
# The lines of this exchange: a PMI line, and the message that a rank needs no more of them.
_PMI, _DONE = "mpi pmi ", "mpi done"
# Between hosts, UCX's packets of 4 MB and more take longer over Ethernet than those of libfabric. On one
# host, libfabric leaves files in /dev/shm if a rank is killed.
_BETWEEN_HOSTS = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
_ON_ONE_HOST = {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "self,sm"}


class Joining:
    """This process on its way to become a rank. ``finish()`` follows when all ranks have communicated."""

    def __init__(self, talks: Talks, agreement: MpiAgreement, library: MpiLibrary, timeout: float) -> None:
        self._talks, self._nodes, self._library, self._timeout = talks, agreement.nodes, library, timeout
        # Jobs that this process starts later are no part of this start.
        self._start = os.environ.pop(START, "")
        self._relay = _Relay(talks, PmiServer(job_of_start(self._start or talks.door.answer), self._nodes))

    def start(self) -> Any:
        """Start MPI together with the others, and return the communicator of all ranks."""
        until = time.monotonic() + self._timeout
        self._relay.thread.start()
        started: list[int] = []
        with _environment(self._variables()):
            calls = threading.Thread(target=lambda: started.append(self._library.initialize()), daemon=True)
            calls.start()
            while calls.is_alive() and self._relay.failure is None and time.monotonic() < until:
                calls.join(_POLL)
        if not started or started[0] != 0:
            why = self._relay.failure or f"MPI did not start within {self._timeout:g} s"
            raise self._talks.error(why if not started else f"MPI_Init failed with code {started[0]}")
        return self._library.world()

    def _variables(self) -> dict[str, str]:
        rank = {
            "PMI_FD": str(self._relay.of_mpi.fileno()), "PMI_RANK": str(self._talks.rank),
            "PMI_SIZE": str(len(self._nodes)),
        }  # fmt: skip
        if len(set(self._nodes)) == 1:
            return rank | (self._on_one_host() if sys.platform == "linux" else {})
        port, interface = str(self._talks.door.port), self._talks.interface
        ports = {"FI_TCP_PORT_LOW_RANGE": port, "FI_TCP_PORT_HIGH_RANGE": port}
        return rank | _BETWEEN_HOSTS | ports | ({"FI_TCP_IFACE": interface} if interface else {})

    def _on_one_host(self) -> dict[str, str]:
        if not self._start:
            return _ON_ONE_HOST
        folder = folder_of_start(self._start)
        folder.mkdir(mode=0o700, exist_ok=True)
        return _ON_ONE_HOST | {"UCX_POSIX_DIR": str(folder)}

    def finish(self) -> None:
        """Wait until no rank needs the leader. All ranks must have communicated with each other."""
        relay = self._relay
        relay.of_mpi.send(f"{_DONE}\n".encode())
        relay.thread.join(self._timeout)
        if relay.failure is not None or relay.thread.is_alive():
            raise self._talks.error(relay.failure or f"not all communicated within {self._timeout:g} s")
        remove_names(os.getpid())  # all ranks have mapped the memory
        # The library sends a goodbye when the process exits, and waits for an answer. By then nobody serves
        # it, and Python has closed its sockets.
        at_exit.register(partial(relay.local.send, "cmd=finalize_ack"))
        os.dup(relay.local.connection.fileno())
        relay.of_mpi.detach()

    def end(self) -> None:
        """End MPI, when all ranks have finished. No rank needs the others for it."""
        alone, local = PmiServer("", [0]), self._relay.local

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    ready([local], _POLL)
                    if (line := local.take()) is not None:
                        local.send(alone.answer(0, line)[0])

        threading.Thread(target=answer, name="tfdistr-pmi", daemon=True).start()
        self._library.finalize()


class _Relay:
    """A thread that passes lines between MPI in this process and the leader, until no rank needs it.

    Attributes:
        failure: Why it has failed, if it has.
        of_mpi: The end of the local connection that MPI gets; ``local`` is the other end.
    """

    def __init__(self, talks: Talks, server: PmiServer) -> None:
        self._peers, self._server = talks.peers, server
        ours, self.of_mpi = socket.socketpair()
        self.local = Lines(ours)
        self.failure: str | None = None
        work = self._serve if talks.rank == 0 else self._pass_on
        self.thread = threading.Thread(target=self._run, args=[work], name="tfdistr-pmi", daemon=True)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except PmiError as error:
            self.failure = self.failure or str(error)
        except (OSError, ValueError):  # the second, if this process has closed its connections
            self.failure = self.failure or "worker 0 has ended"

    def _pass_on(self) -> None:
        """Forward the lines between MPI and the leader, until this rank needs no more."""
        leader, line = self._peers[0], None
        while line != _DONE:
            come = ready([leader, self.local], _POLL)
            if leader in come and (line := leader.take()) is not None:
                if not line.startswith(_PMI):
                    raise PmiError(f"the leader reports: {printable(line.removeprefix(END))}")
                self.local.send(line.removeprefix(_PMI))
            if self.local in come and (line := self.local.take()) is not None:
                leader.send(line if line == _DONE else _PMI + line)

    def _serve(self) -> None:
        left = {0: self.local, **self._peers}
        while left:
            come = ready(left.values(), _POLL)
            for rank, lines in [(rank, lines) for rank, lines in left.items() if lines in come]:
                try:
                    line = lines.take()
                    if line == _DONE:
                        del left[rank]
                    elif line is not None:
                        self._answer(rank, line)
                except (OSError, PmiError) as error:
                    what = f"has sent {error}" if isinstance(error, PmiError) else "has exited"
                    self.failure = f"worker {rank} {what}"
                    for other in left.keys() - {0}:
                        with contextlib.suppress(OSError):
                            left[other].send(END + self.failure)
                    raise

    def _answer(self, rank: int, line: str) -> None:
        if rank and not line.startswith(_PMI):
            raise PmiError(f"an unknown line: {printable(line)}")
        for to, answer in self._server.answer(rank, line.removeprefix(_PMI)).items():
            if to:
                self._peers[to].send(_PMI + answer)
            else:
                self.local.send(answer)


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables that the user has not set, and remove those that only name this rank."""
    given = {name: v for name, v in values.items() if name.startswith("PMI_") or name not in os.environ}
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            del os.environ[name]

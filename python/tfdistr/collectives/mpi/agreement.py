"""The agreement between joined workers whether they can become the ranks of one MPI job.

Each worker tells the leader where it runs, and which MPI it has. Workers of different hosts then try to
connect to each other. The leader sends the result to all of them, so they all do the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tfdistr.collectives.mpi.obstacles import (
    MORE_ROOM,
    Door,
    OpenDoor,
    free_room,
    interface,
    too_small,
    unreached,
    why_refused,
)
from tfdistr.errors import ClusterStartError
from tfdistr.rendezvous.lifelines import Lifelines, ready
from tfdistr.rendezvous.protocol import printable
from tfdistr.utils.processes import running_system

_TEXT = 300  # characters of a reason
_TO_CONNECT = 5.0  # seconds; a firewall may drop packets silently
# The lines: a worker's description, the others' addresses, the unreachable workers, and the result.
_SELF, _DOORS, _REACHED, _RESULT = "mpi self ", "mpi doors ", "mpi reached ", "mpi result "
#: The line that ends a start, with the reason.
END = "mpi end "


class MpiAgreement(NamedTuple):
    """Result of the talks, the same on all workers.

    Attributes:
        obstacle: Why they cannot be the ranks of one MPI job; "" if they can.
        nodes: For each worker, the number of its node. The workers of a node share memory.
    """

    obstacle: str
    nodes: list[int]


class _Self(NamedTuple):
    """A worker: its node, MPI version, why it can be no rank (or ""), address for others, and free memory."""

    node: str
    library: str
    obstacle: str
    door: Door
    free: int | None


class _Doors(NamedTuple):
    """Addresses and nodes of all workers."""

    doors: list[Door]
    nodes: list[int]


class Talks:
    """The talks of this worker with the others about MPI.

    Args:
        lifelines: The connections of the rendezvous, which nobody reads meanwhile.
        tasks: The addresses of the workers in order, by their names such as "worker 0".
    """

    def __init__(self, lifelines: Lifelines, tasks: Mapping[str, str], own: str, timeout: float) -> None:
        self.tasks, self.names, self.rank, self.timeout = tasks, list(tasks), list(tasks).index(own), timeout
        #: The connections by rank: those of the leader to all, or of this worker to the leader.
        self.peers = {self.names.index(name): lines for name, lines in lifelines.lines.items()}
        here = [lines.connection.getsockname()[0] for lines in self.peers.values()]
        host, self.interface = interface(here)
        #: Where MPI listens if there are several hosts: at the port of the rendezvous, which is open.
        self.door = Door(host, int(tasks[own].rpartition(":")[2]), uuid.uuid4().hex)
        self._until = time.monotonic() + timeout

    def agree(self, library: str, obstacle: str) -> MpiAgreement:
        """Find out whether the workers can be the ranks of one MPI job. All workers call this."""
        with contextlib.ExitStack() as open_until_the_end:
            try:
                if not obstacle:
                    open_until_the_end.callback(OpenDoor(self.door).close)
            except OSError as error:
                why = os.strerror(error.errno) if error.errno else error
                obstacle = f"it cannot listen at {self.door} ({why})"
            own = _Self(node(), library, obstacle or why_refused(), self.door, free_room())
            return self._lead(own) if self.rank == 0 else self._follow(own)

    def error(self, why: str) -> ClusterStartError:
        return ClusterStartError(
            "The workers cannot become the ranks of one MPI job.",
            received=f"{self.names[self.rank]}: {why}",
            fix=f"{MORE_ROOM}, install the same mpich on each host, open the firewall between them, or pass "
            'communication="ring".',
        )

    def _lead(self, own: _Self) -> MpiAgreement:
        ranks = sorted(self.peers)
        try:
            said: list[_Self] = [own, *(self._expect(rank, {_SELF: _read_self}) for rank in ranks)]
            places = [each.node for each in said]
            nodes = [sorted(set(places), key=places.index).index(place) for place in places]
            why = self._obstacle(said, nodes)
            if not why and len(set(nodes)) > 1:
                there = _Doors([each.door for each in said], nodes)
                self._say_all(_DOORS, there)
                found = [self._reach(there), *(self._expect(rank, {_REACHED: printable}) for rank in ranks)]
                why = next(filter(None, found), "")
            self._say_all(_RESULT, MpiAgreement(why, nodes))
        except ClusterStartError as error:
            for peer in self.peers.values():
                with contextlib.suppress(OSError):
                    peer.send(f"{END}{self.names[self.rank]}: {error.received}")
            raise
        return MpiAgreement(why, nodes)

    def _follow(self, own: _Self) -> MpiAgreement:
        leader = self.peers[0]
        leader.send(_SELF + json.dumps(own))
        heard = self._expect(0, {_DOORS: self._read_doors, _RESULT: self._read_result})
        if isinstance(heard, _Doors):
            leader.send(_REACHED + self._reach(heard))
            heard = self._expect(0, {_RESULT: self._read_result})
        agreement: MpiAgreement = heard
        return agreement

    def _obstacle(self, said: Sequence[_Self], nodes: Sequence[int]) -> str:
        """Return why these workers cannot be ranks; "" if no obstacle is known."""
        for name, each, own in zip(self.names, said, nodes, strict=True):
            if obstacle := each.obstacle or too_small(each.free, nodes.count(own)):
                return f"{name}: {obstacle}"
        libraries: dict[str, str] = {}
        for name, each in zip(self.names, said, strict=True):
            libraries.setdefault(each.library, name)
        different = " and ".join(f"{name} has {library}" for library, name in libraries.items())
        return different if len(libraries) > 1 else ""

    def _reach(self, there: _Doors) -> str:
        """Return why this worker does not reach one on another node; "" if it reaches all."""
        own, workers = there.nodes[self.rank], zip(self.names, there.doors, there.nodes, strict=True)
        why = unreached({name: door for name, door, node in workers if node != own}, _TO_CONNECT)
        return f"{self.names[self.rank]} {why}" if why else ""

    def _read_doors(self, line: str) -> _Doors:
        doors, nodes = json.loads(line)
        return _Doors([Door.parse(door) for door in doors], self._read_nodes(nodes))

    def _read_result(self, line: str) -> MpiAgreement:
        obstacle, nodes = json.loads(line)
        return MpiAgreement(printable(obstacle, _TEXT), self._read_nodes(nodes))

    def _read_nodes(self, value: Any) -> list[int]:
        if len(value) != len(self.names) or not all(type(number) is int for number in value):
            raise ValueError("no numbers of nodes")
        return list(value)

    def _say_all(self, kind: str, message: object) -> None:
        for rank, peer in self.peers.items():
            try:
                peer.send(kind + json.dumps(message))
            except OSError as error:
                raise self.error(f"{self._name(rank)} has exited") from error

    def _expect(self, rank: int, kinds: Mapping[str, Callable[[str], object]]) -> Any:
        """Wait for a line of a worker, and read it with the function for the words with which it begins."""
        try:
            line = self._line(rank)
        except OSError as error:
            raise self.error(f"{self._name(rank)} has exited") from error
        if line.startswith(END):
            raise self.error(printable(line.removeprefix(END), _TEXT))
        for kind, read in kinds.items():
            if line.startswith(kind):
                with contextlib.suppress(ValueError, TypeError, RecursionError):
                    return read(line.removeprefix(kind))
        raise self.error(f"{self._name(rank)} has sent an unknown line")

    def _line(self, rank: int) -> str:
        while (left := self._until - time.monotonic()) > 0:
            ready([self.peers[rank]], left)
            if (line := self.peers[rank].take()) is not None:
                return line
        raise self.error(f"{self._name(rank)} has not joined within {self.timeout:g} s")

    def _name(self, rank: int) -> str:
        return f"{self.names[rank]} ({self.tasks[self.names[rank]]})"


def _read_self(line: str) -> _Self:
    node, library, obstacle, door, free = json.loads(line)
    if free is not None and type(free) is not int:
        raise ValueError("no number of bytes")
    return _Self(printable(node), printable(library), printable(obstacle, _TEXT), Door.parse(door), free)


def node() -> str:
    """Identify the memory that the processes of this host share."""
    try:
        return f"{running_system()}-{os.stat('/dev/shm').st_dev}"
    except OSError:  # not on Linux
        return socket.gethostname()

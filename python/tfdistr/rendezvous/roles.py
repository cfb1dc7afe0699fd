"""The roles in the rendezvous: the others register with the leader, which compares them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import cast

from tfdistr.errors import ClusterStartError
from tfdistr.rendezvous.peer_failure import mismatch
from tfdistr.rendezvous.protocol import (
    MeetingEnd,
    Message,
    greeting_of,
    is_list_of_names,
    parse_message,
    printable,
    send,
)
from tfdistr.rendezvous.survey import Survey
from tfdistr.rendezvous.token import Proofs, other_token

_RETRY = 0.2
_POLL_INTERVAL = 0.02
_NEWS = 1.0  # seconds between the leader's lines with the tasks for which it waits
#: The errors from messages of a foreign process, or from a lost worker.
NOT_ONE_OF_US = (OSError, ValueError, TypeError, KeyError, RecursionError)


class Decision:
    """The result of the rendezvous. The first worker to know it decides.

    Attributes:
        end: Why the workers cannot start; None if they can.
        heard: Whether the others know it.
        reporter: The process that decided, if it was another one.
        error: An error of this process's own code.
    """

    def __init__(self) -> None:
        self.made = asyncio.Event()
        self.end: MeetingEnd | None = None
        self.heard = False
        self.reporter: str | None = None
        self.error: Exception | None = None

    def make(self, end: MeetingEnd | None, *, heard: bool = False, reporter: str | None = None) -> None:
        if not self.made.is_set():
            self.end, self.heard, self.reporter = end, heard, reporter
            self.made.set()

    def fail(self, error: Exception) -> None:
        if not self.made.is_set():
            self.error = error
            self.made.set()


def duplicate(title: str, first: str, second: str) -> MeetingEnd:
    """Return the reason if two processes have the same task."""
    return MeetingEnd(
        ClusterStartError.kind,
        "Two processes have the same task of the cluster.",
        f"{title} twice: {printable(first)}, and {printable(second)}",
        "Give each process its own task in TF_CONFIG, and stop those of an earlier run.",
    )


class Role(ABC):
    """The part of a worker in the rendezvous.

    Attributes:
        lifelines: Copies of the connections that stay open after the rendezvous, by task.
        hellos: The tasks that have registered with this worker, if it leads (connections: ``writers``).
        strangers: Connections of processes that have no task in this cluster.
    """

    def __init__(self, survey: Survey, decision: Decision) -> None:
        self._survey, self._decision, self._proofs = survey, decision, Proofs()
        self.lifelines: dict[str, socket.socket] = {}
        self.hellos: dict[str, Message] = {survey.own: survey.hello} if survey.leads else {}
        self.writers: dict[str, asyncio.StreamWriter] = {}
        self.strangers: list[asyncio.StreamWriter] = []

    @property
    def missing(self) -> list[str]:
        """The tasks for which this worker waits, as far as it knows."""
        if self._survey.unresolved:
            return [name for name in self._survey.tasks if name in self._survey.unresolved]
        return self._waits_for()

    async def run(self) -> None:
        try:
            await self._run()
        except Exception as error:  # otherwise all workers would wait in vain
            self._decision.fail(error)

    @property
    def logs(self) -> bool:
        """Return whether this worker logs the missing tasks; otherwise the leader logs them."""
        return True

    async def welcome(self, message: Message, nonce: str, writer: asyncio.StreamWriter) -> str:
        """Take the hello of a process; return its task."""
        raise ValueError("this worker does not lead")

    def leave(self, name: str | None, writer: asyncio.StreamWriter) -> None:
        """Forget a worker whose connection has ended."""
        if name is not None and self.writers.get(name) is writer and not self._decision.made.is_set():
            del self.writers[name], self.hellos[name]

    def report(self, end: MeetingEnd) -> None:
        """Tell the leader how the meeting has ended for this worker."""
        return

    def _keep(self, name: str, writer: asyncio.StreamWriter) -> None:
        self.lifelines[name] = writer.get_extra_info("socket").dup()

    @abstractmethod
    def _waits_for(self) -> list[str]: ...

    @abstractmethod
    async def _run(self) -> None: ...


class Leader(Role):
    """The first worker."""

    def _waits_for(self) -> list[str]:
        return [name for name in self._survey.tasks if name not in self.hellos]

    async def _run(self) -> None:
        said = 0.0
        while self.missing:
            await asyncio.sleep(_POLL_INTERVAL)
            if time.monotonic() - said > _NEWS:
                said = time.monotonic()
                waits = self._survey.without(self.hellos.keys() - self._survey.unresolved)
                for writer in self.writers.values():
                    send(writer, {"waits": list(waits)})
        names = list(self._survey.tasks)
        error = mismatch([self.hellos[name]["fields"] for name in names], names)
        if error is None:
            writers = dict(self.writers)
            for name, writer in writers.items():
                # What a worker sends after "go" is not for the rendezvous, which must not read it.
                cast(asyncio.Transport, writer.transport).pause_reading()
                self._keep(name, writer)
            for writer in writers.values():
                send(writer, {"go": True})
                with contextlib.suppress(OSError):
                    await writer.drain()
        self._decision.make(MeetingEnd.of(error) if error else None)

    async def welcome(self, message: Message, nonce: str, writer: asyncio.StreamWriter) -> str:
        theirs, hello, proof = message.get("nonce"), message["hello"], message.get("proof")
        # A worker with a token does not believe a leader without one.
        if (proof and not self._proofs) or not self._proofs.holds(proof, "hello", nonce, theirs, hello):
            send(writer, {"end": asdict(MeetingEnd.of(other_token()))})
            await writer.drain()
            raise ValueError("another token")
        send(writer, {"proof": self._proofs.of("leader", theirs)})
        return self._register(hello, writer)

    def _register(self, hello: Message, writer: asyncio.StreamWriter) -> str:
        if not _is_hello(hello):
            raise ValueError("no hello")
        survey, name = self._survey, str(hello["task"])
        known = self.hellos.get(name)
        if known and known["id"] != hello["id"]:
            self.strangers.append(writer)
            self._decision.make(duplicate(survey.title(name), known["id"], hello["id"]))
        elif name not in survey.tasks:
            error = mismatch([survey.hello["fields"], hello["fields"]], [survey.own, name])
            if error is None:  # a real worker would have one more address
                raise ValueError("no hello")
            self.strangers.append(writer)
            self._decision.make(MeetingEnd.of(error))
        else:
            self.hellos[name], self.writers[name] = hello, writer
        return name


class Follower(Role):
    """A worker that is not the leader."""

    def __init__(self, survey: Survey, decision: Decision) -> None:
        super().__init__(survey, decision)
        # The connection to the leader, and its missing tasks; None without a connection.
        self._to_leader: asyncio.StreamWriter | None = None
        self._leader_waits: list[str] | None = None

    @property
    def logs(self) -> bool:
        return self._leader_waits is None

    def report(self, end: MeetingEnd) -> None:
        if self._to_leader is not None:
            send(self._to_leader, {"end": asdict(end)})

    def _waits_for(self) -> list[str]:
        return [self._survey.leader] if self._leader_waits is None else self._leader_waits

    async def _run(self) -> None:
        """Register with the leader. Repeat it until the rendezvous is over."""
        while True:
            while self._survey.unresolved:
                await asyncio.sleep(_POLL_INTERVAL)
            with contextlib.suppress(*NOT_ONE_OF_US):  # too early; the reason is reported at the end
                await self._join()
            await asyncio.sleep(_RETRY)

    async def _join(self) -> None:
        survey, proofs = self._survey, self._proofs
        greeting, reader, writer = await greeting_of(survey.tasks[survey.leader])
        try:
            if greeting["task"] == survey.leader:
                nonce = proofs.nonce()
                proof = proofs.of("hello", greeting["nonce"], nonce, survey.hello)
                send(writer, {"hello": survey.hello, "nonce": nonce, "proof": proof})
                if proofs:
                    told = parse_message(await reader.readline()).get("proof")
                    self._survey.refused = not proofs.holds(told, "leader", nonce)
                    if self._survey.refused:
                        raise ValueError("another token")
                self._to_leader = writer
                await self._hear(reader)
        finally:
            self._to_leader = self._leader_waits = None
            writer.close()

    async def _hear(self, leader: asyncio.StreamReader) -> None:
        survey = self._survey
        while line := await leader.readline():
            message = parse_message(line)
            if "waits" in message:
                if not is_list_of_names(message["waits"]):
                    raise ValueError("no names")
                self._leader_waits = [name for name in message["waits"] if name in survey.tasks]
            elif "end" in message:
                end = MeetingEnd.heard(message["end"])
                self._decision.make(end, heard=True, reporter=survey.title(survey.leader))
            elif "go" in message:
                if self._to_leader and not self._decision.made.is_set():
                    self._keep(survey.leader, self._to_leader)
                self._decision.make(None)


def _is_hello(message: object) -> bool:
    return (
        isinstance(message, dict)
        and all(isinstance(message.get(name), str) for name in ("task", "id"))
        and isinstance(message.get("fields"), dict)
        and all(isinstance(value, str) for value in message["fields"].values())
    )

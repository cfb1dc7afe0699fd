"""The rendezvous: before TensorFlow starts its servers, it checks that all workers have joined and agree.

TensorFlow waits for a missing worker, and does not notice that two workers have different addresses or
versions. Here each worker listens on the port of its address, which shows that the port is free. The first
worker, the leader, receives a message from each other worker. The workers continue when all have joined and
agree. The first process that finds an obstacle tells all workers that have joined, so that they raise the
same error.

After the rendezvous, the connections to the leader stay open: see ``tfdistr.rendezvous.lifelines``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from tfdistr.errors import ClusterConfigError, ClusterStartError, TfdistrError
from tfdistr.rendezvous.config import ClusterConfig, cluster_from_env
from tfdistr.rendezvous.lifelines import Lifelines
from tfdistr.rendezvous.peer_failure import mismatch
from tfdistr.rendezvous.pods import kubernetes_cluster_from_env
from tfdistr.rendezvous.protocol import (
    LONGEST,
    MeetingEnd,
    absence,
    absence_error,
    greeting_of,
    is_list_of_names,
    listening_socket,
    lookup,
    no_port,
    no_port_error,
    parse,
    printable,
    quoted,
    resolves,
    send,
    some_at_once,
    tell,
    this_process,
)
from tfdistr.rendezvous.slurm_step import slurm_cluster_from_env
from tfdistr.rendezvous.tf_config import load_json, split_address
from tfdistr.rendezvous.token import TOKEN, Proofs, other_token
from tfdistr.utils.processes import is_session
from tfdistr.utils.warn import NOTE

#: Seconds after which a waiting worker names the workers that are missing.
WAITING_NOTE = 30.0
#: Seconds in which a worker that cannot start still tells workers that join later.
TELLING = 10.0
#: Seconds in which a process that cannot join looks for a worker to tell: workers import TensorFlow first.
SEEKING = 30.0
_RETRY = 0.2
_POLL_INTERVAL = 0.02
_NEWS = 1.0  # seconds between the leader's lines with the tasks for which it waits
_FIRST = 10.0  # seconds in which a connected process must send its first line
_LINES, _BYTES = 64, 4 * LONGEST  # of one connection; a worker sends one or two lines
_MORE = 256  # connections beside those of the tasks
_SHOWN = 8  # missing tasks in a message
# The errors from messages of a foreign process, or from a lost worker.
_NOT_ONE_OF_US = (OSError, ValueError, TypeError, KeyError, RecursionError)

log = logging.getLogger("tfdistr")


def meet(tasks: Mapping[str, str], own: str, fields: Mapping[str, str], timeout: float) -> Lifelines:
    """Wait until all workers of the cluster have joined, and check that they agree.

    Args:
        tasks: The address of each task, by its name ("worker 1"). The leader comes first.
        fields: The values that must be the same on all workers, as the addresses must.

    Returns:
        The connections to the leader; on the leader, the connections to the others.

    Raises:
        ClusterStartError: The port of this worker is not available, or two processes have the same task,
            or a worker is missing. The error names them.
        JobMismatchError: The workers differ.
    """
    meeting = _Meeting(tasks, own, fields, timeout)
    # Not a daemon: while the error is shown, the thread still tells peers that join later.
    thread = threading.Thread(target=meeting.run, name="tfdistr-preflight")
    thread.start()
    try:
        while not meeting.over.wait(0.1):
            pass
    except BaseException:
        meeting.cancel()
        thread.join()  # it frees the port: a session lives on, and may call again
        meeting.lifelines().close()
        raise
    return meeting.result()


def cluster_to_join() -> ClusterConfig | None:
    """Return the cluster that TF_CONFIG describes, or else the cluster of Slurm or Kubernetes.

    Raises:
        ClusterConfigError: The variables of Slurm, Kubernetes or TF_CONFIG are not valid. This process tells
            the workers in TF_CONFIG, because they may wait for it. A script exits with the error, so there it
            is raised only when one of the workers knows it, or after ``SEEKING`` seconds.
    """
    try:
        config = cluster_from_env()
    except ClusterConfigError as error:
        peers = _readable_workers(os.environ["TF_CONFIG"])
        if peers:
            telling = tell_of(error, peers)
            if not is_session():
                telling.join(_NEWS)
                if telling.is_alive():
                    text = "TF_CONFIG is not valid. This is told to the workers that it names."
                    log.warning(text, extra=NOTE)
                telling.join()
        raise
    return config or slurm_cluster_from_env() or kubernetes_cluster_from_env()


def _readable_workers(text: str) -> dict[str, str]:
    """Read the addresses of workers, by their names, from a TF_CONFIG that is not valid."""
    found: dict[str, str] = {}
    with contextlib.suppress(ClusterConfigError, KeyError, TypeError, AttributeError):
        cluster = load_json(text)["cluster"]
        for job in ("chief", "worker"):
            listed = cluster.get(job) or []
            for index, item in enumerate(listed if isinstance(listed, list) else [listed]):
                address = item[0] if isinstance(item, list) and item else item  # the form of R's jsonlite
                with contextlib.suppress(ClusterConfigError):
                    split_address(address)
                    found[f"{job} {index}"] = address
    return found


def tell_of(error: TfdistrError, tasks: Mapping[str, str]) -> threading.Thread:
    """Tell a waiting worker why this process cannot join. The worker tells the other workers.

    If no worker waits yet, this process tells the workers that come in the next ``SEEKING`` seconds.

    Args:
        error: The reason.
        tasks: The address of each task, by its name. Tasks whose hosts do not resolve are left out.

    Returns:
        The thread that does it. It keeps running while the interpreter exits.
    """
    end = replace(MeetingEnd.of(error), kind=ClusterStartError.kind)
    received = f"{end.received}, in" if error.received is not None else "in"
    end = replace(end, received=f"{received} {this_process()}")

    async def seek() -> None:
        known = {name: address for name, address in tasks.items() if await resolves(address)}
        told: set[str] = set()
        until = time.monotonic() + SEEKING
        while known and not told and time.monotonic() < until:
            await tell(known, end, told, pass_on=True)
            await asyncio.sleep(0 if told else _RETRY)

    thread = threading.Thread(target=lambda: asyncio.run(seek()), name="tfdistr-preflight")
    thread.start()
    return thread


def _is_hello(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and all(isinstance(message.get(name), str) for name in ("task", "id"))
        and isinstance(message.get("fields"), dict)
        and all(isinstance(value, str) for value in message["fields"].values())
    )


class _Meeting:
    """One worker's part in the rendezvous. The leader, or the first worker to find an obstacle, decides."""

    def __init__(self, tasks: Mapping[str, str], own: str, fields: Mapping[str, str], timeout: float) -> None:
        self.over = threading.Event()
        self._tasks = dict(tasks)
        self._own = own
        self._leader = next(iter(self._tasks))
        self._timeout = timeout
        self._id = this_process()
        addresses = {f"address of {name}": address for name, address in self._tasks.items()}
        self._hello: dict[str, Any] = {"task": own, "id": self._id, "fields": {**addresses, **fields}}
        self._failure: BaseException | None = None
        self._reporter: str | None = None  # the process that decided, if it was another one
        self._cancelled = False
        # Only in the leader: the registered workers and their connections.
        self._hellos: dict[str, Any] = {own: self._hello} if own == self._leader else {}
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._strangers: list[asyncio.StreamWriter] = []  # processes that have no task in this cluster
        self._open = 0  # connections of others to this worker
        self._proofs = Proofs()
        self._refused = False  # by a process at the address of the leader, with another token
        # Only in the others: the connection to the leader, and its missing tasks; None without a connection.
        self._to_leader: asyncio.StreamWriter | None = None
        self._leader_waits: list[str] | None = None
        self._unresolved = set(self._tasks)
        # Copies of the connections that stay open after the leader has told all workers to continue.
        self._lifelines: dict[str, socket.socket] = {}

    # --- From other threads

    def run(self) -> None:
        """Run the rendezvous, and set ``over`` when the result is there."""
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # raised again by result()
            self._failure = self._failure or error
        finally:
            self.over.set()

    def cancel(self) -> None:
        """Stop the rendezvous."""
        self._cancelled = True
        with contextlib.suppress(AttributeError, RuntimeError):  # it has not begun, or has ended
            self._loop.call_soon_threadsafe(self._running.cancel)

    def lifelines(self) -> Lifelines:
        """Return the connections that stay open."""
        return Lifelines(self._lifelines)

    def result(self) -> Lifelines:
        """Return the connections that stay open. Raise the error if the workers cannot start."""
        if self._failure:
            self.lifelines().close()
            raise self._failure
        return self.lifelines()

    # --- In the loop

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        running = asyncio.current_task()
        assert running is not None
        self._running = running
        self._decided: asyncio.Future[tuple[MeetingEnd | None, bool]] = self._loop.create_future()
        if self._cancelled:  # before there was a loop
            return
        try:
            server = await self._listen()
        except OSError as error:
            await self._finish(await self._no_port(error), None, linger=True)
            return
        try:
            await server.start_serving()
            await self._hold(server)
        finally:
            server.close()

    async def _hold(self, server: asyncio.Server) -> None:
        """Find the other workers, and decide whether they can continue."""
        work = [asyncio.create_task(job) for job in (self._resolve(), self._note(), self._lead_or_join())]
        linger = True
        try:
            end, heard = await asyncio.wait_for(asyncio.shield(self._decided), self._timeout)
        except TimeoutError:
            end, heard, linger = await self._too_late(), False, False
            if self._decided.done():  # a peer was quicker
                end, heard = self._decided.result()
        if end and not heard and self._to_leader:
            # Before the connection closes: otherwise the leader would consider this worker lost.
            send(self._to_leader, {"end": asdict(end)})
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await self._finish(end, server, heard=heard, linger=linger)

    async def _finish(
        self, end: MeetingEnd | None, server: asyncio.Server | None, *, heard: bool = False, linger: bool
    ) -> None:
        """Tell the peers a result that they do not know, and let the caller continue."""
        told = {self._own}
        if end and (not heard or self._own == self._leader):  # another worker may not know all addresses
            for writer in (*self._writers.values(), *self._strangers):
                send(writer, {"end": asdict(end)})
                with contextlib.suppress(OSError):
                    await writer.drain()
            told |= set(self._writers)
            await tell(self._without(told), end, told)
        # Only now: a peer that no longer reaches this worker already knows the reason.
        if server:
            server.close()
        for writer in (*self._writers.values(), *self._strangers):
            writer.close()
        self._failure = end.error(self._reporter) if end else None
        self.over.set()
        until = time.monotonic() + TELLING
        while end and linger and not heard and self._without(told) and time.monotonic() < until:
            await asyncio.sleep(_RETRY)
            await tell(self._without(told), end, told)

    def _without(self, names: Iterable[str]) -> dict[str, str]:
        return {name: address for name, address in self._tasks.items() if name not in names}

    def _decide(self, end: MeetingEnd | None, *, heard: bool = False, reporter: str | None = None) -> None:
        if not self._decided.done():
            self._reporter = reporter
            self._decided.set_result((end, heard))

    async def _listen(self) -> asyncio.Server:
        listens = await listening_socket(self._tasks[self._own], self._tasks.values())
        # It does not serve yet: without a wait here, no interrupt can leave the socket open.
        return await asyncio.start_server(self._serve, sock=listens, limit=LONGEST, start_serving=False)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a process that has connected to this worker."""
        name, nonce = None, self._proofs.nonce()
        self._open += 1
        try:
            if self._open > len(self._tasks) + _MORE:
                return
            greeting = {"task": self._own, "id": self._id, "waits": self._missing(), "time": time.time()}
            send(writer, {**greeting, "nonce": nonce, "token": bool(self._proofs)})
            line = await asyncio.wait_for(reader.readline(), _FIRST)
            lines, size = 0, 0
            while line:
                lines, size = lines + 1, size + len(line)
                if lines > _LINES or size > _BYTES:
                    return
                message = parse(line)
                if "end" in message:
                    said = {part: message.get(part) for part in ("end", "pass_on")}
                    if name is None and not self._proofs.holds(message.get("proof"), "end", nonce, said):
                        return
                    # A process that cannot join leaves it to this worker to tell the others.
                    place = writer.get_extra_info("peername")[0]
                    known = name is not None and name in self._tasks
                    reporter = self._title(str(name)) if known else f"a process at {place}"
                    end, heard = MeetingEnd.heard(message["end"]), message.get("pass_on") is not True
                    self._decide(end, heard=heard, reporter=reporter)
                elif self._own == self._leader:
                    theirs, hello = message.get("nonce"), message["hello"]
                    proof = message.get("proof")
                    # A worker with a token does not believe a leader without one.
                    if (proof and not self._proofs) or not self._proofs.holds(
                        proof, "hello", nonce, theirs, hello
                    ):
                        send(writer, {"end": asdict(MeetingEnd.of(other_token()))})
                        await writer.drain()
                        return
                    send(writer, {"proof": self._proofs.of("leader", theirs)})
                    name = self._register(hello, writer)
                line = await reader.readline()
        except _NOT_ONE_OF_US:
            pass
        except asyncio.CancelledError:
            pass  # the rendezvous is over; asyncio would print the error
        finally:
            self._open -= 1
            if self._writers.get(str(name)) is writer and not self._decided.done():
                del self._writers[str(name)], self._hellos[str(name)]
            writer.close()

    def _register(self, hello: Any, writer: asyncio.StreamWriter) -> str:
        if not _is_hello(hello):
            raise ValueError("no hello")
        name = str(hello["task"])
        known = self._hellos.get(name)
        if known and known["id"] != hello["id"]:
            self._strangers.append(writer)
            self._decide(self._duplicate(name, known["id"], hello["id"]))
        elif name not in self._tasks:
            error = mismatch([self._hello["fields"], hello["fields"]], [self._own, name])
            if error is None:  # a real worker would have one more address
                raise ValueError("no hello")
            self._strangers.append(writer)
            self._decide(MeetingEnd.of(error))
        else:
            self._hellos[name], self._writers[name] = hello, writer
        return name

    async def _lead_or_join(self) -> None:
        try:
            await (self._lead() if self._own == self._leader else self._join())
        except Exception as error:  # otherwise all workers would wait in vain
            if not self._decided.done():
                self._decided.set_exception(error)

    async def _lead(self) -> None:
        said = 0.0
        while self._missing():
            await asyncio.sleep(_POLL_INTERVAL)
            if time.monotonic() - said > _NEWS:
                said = time.monotonic()
                waits = [n for n in self._tasks if n in self._unresolved or n not in self._hellos]
                for writer in self._writers.values():
                    send(writer, {"waits": waits})
        names = list(self._tasks)
        error = mismatch([self._hellos[name]["fields"] for name in names], names)
        if error is None:
            writers = dict(self._writers)
            for name, writer in writers.items():
                # What a worker sends after "go" is not for the rendezvous, which must not read it.
                cast(asyncio.Transport, writer.transport).pause_reading()
                self._keep(name, writer)
            for writer in writers.values():
                send(writer, {"go": True})
                with contextlib.suppress(OSError):
                    await writer.drain()
        self._decide(MeetingEnd.of(error) if error else None)

    def _keep(self, name: str, writer: asyncio.StreamWriter) -> None:
        self._lifelines[name] = writer.get_extra_info("socket").dup()

    async def _join(self) -> None:
        """Register with the leader. Repeat it until the rendezvous is over."""
        while True:
            while self._unresolved:
                await asyncio.sleep(_POLL_INTERVAL)
            with contextlib.suppress(*_NOT_ONE_OF_US):  # too early; the reason is reported at the end
                greeting, reader, writer = await greeting_of(self._tasks[self._leader])
                try:
                    if greeting["task"] == self._leader:
                        nonce = self._proofs.nonce()
                        proof = self._proofs.of("hello", greeting["nonce"], nonce, self._hello)
                        send(writer, {"hello": self._hello, "nonce": nonce, "proof": proof})
                        if self._proofs:
                            told = parse(await reader.readline()).get("proof")
                            self._refused = not self._proofs.holds(told, "leader", nonce)
                            if self._refused:
                                raise ValueError("another token")
                        self._to_leader = writer
                        await self._hear(reader)
                finally:
                    self._to_leader = self._leader_waits = None
                    writer.close()
            await asyncio.sleep(_RETRY)

    async def _hear(self, leader: asyncio.StreamReader) -> None:
        while line := await leader.readline():
            message = parse(line)
            if "waits" in message:
                if not is_list_of_names(message["waits"]):
                    raise ValueError("no names")
                self._leader_waits = [name for name in message["waits"] if name in self._tasks]
            elif "end" in message:
                self._decide(MeetingEnd.heard(message["end"]), heard=True, reporter=self._title(self._leader))
            elif "go" in message:
                if self._to_leader and not self._decided.done():
                    self._keep(self._leader, self._to_leader)
                self._decide(None)

    async def _resolve(self) -> None:
        """Look up the names of all tasks until each resolves."""

        async def look(name: str) -> None:
            host, port = split_address(self._tasks[name])
            while name in self._unresolved:
                try:
                    await lookup(host, port)
                    self._unresolved.discard(name)
                except OSError:
                    await asyncio.sleep(_NEWS)

        await asyncio.gather(*map(look, self._tasks))

    def _missing(self) -> list[str]:
        """Return the tasks for which this worker waits, as far as it knows."""
        if self._unresolved:
            return [name for name in self._tasks if name in self._unresolved]
        if self._own == self._leader:
            return [name for name in self._tasks if name not in self._hellos]
        return [self._leader] if self._leader_waits is None else self._leader_waits

    async def _note(self) -> None:
        """Log from time to time for which tasks this worker waits."""
        pause = WAITING_NOTE
        while True:
            await asyncio.sleep(pause)
            if self._own == self._leader or self._leader_waits is None:  # otherwise the leader logs it
                reasons = await self._reasons(self._missing())
                log.warning("%s waits for %s.", self._title(self._own), reasons, extra=NOTE)
            pause *= 2

    async def _too_late(self) -> MeetingEnd:
        missing = self._missing()
        if missing == [self._leader] or self._unresolved:  # other workers may also be missing
            others = [n for n in self._tasks if n not in (self._own, *missing, *self._hellos)]
            there = await some_at_once(self._is_there, others)
            missing = missing + [name for name, is_there in zip(others, there, strict=True) if not is_there]
        found = f"waited for {await self._reasons(missing)}"
        return MeetingEnd.of(absence_error(self._title(self._own), found, self._timeout))

    async def _is_there(self, name: str) -> bool:
        try:
            greeting, _, writer = await greeting_of(self._tasks[name])
        except (OSError, ValueError):
            return False
        writer.close()
        # A task that has not registered with the leader may wait for other tasks than the leader.
        waits = set(greeting["waits"]) if self._own == self._leader else set()
        return bool(greeting["task"] == name) and waits <= {*self._unresolved, self._own}

    async def _reasons(self, missing: Sequence[str]) -> str:
        shown = missing[:_SHOWN]
        reasons = await some_at_once(self._reason, shown)
        texts = [self._title(name) + why for name, why in zip(shown, reasons, strict=True)]
        more = len(missing) - len(shown)
        return "; ".join([*texts, *([f"and {more} more"] if more else [])])

    async def _reason(self, name: str) -> str:
        """Describe what answers at the address of a missing task."""
        if name in self._unresolved:
            return ", whose name does not resolve"
        try:
            greeting, _, writer = await greeting_of(self._tasks.get(name, ""))
        except OSError as error:
            return f", {absence(error)}"
        except ValueError:
            return ", where something else answers (has the cluster started already?)"
        writer.close()
        if bool(greeting.get("token")) != bool(self._proofs) or (self._refused and name == self._leader):
            return f", which has another {TOKEN} than this process, or none"
        if greeting["task"] != name:
            other, known = printable(greeting["task"]), greeting["task"] in self._tasks
            return f", where {other if known else f'a process that calls itself {quoted(other)}'} answers"
        waits = [other for other in greeting["waits"] if other != name and other in self._tasks]
        more = ["others"] if len(waits) > _SHOWN else []
        titles = [*map(self._title, waits[:_SHOWN]), *more]
        return f", which waits for {' and '.join(titles)}" if waits else ""

    async def _no_port(self, error: OSError) -> MeetingEnd:
        """Return why this worker cannot listen on its port."""
        greeting: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            greeting, _, writer = await greeting_of(self._tasks[self._own])
            writer.close()
        if greeting.get("task") == self._own:
            return self._duplicate(self._own, greeting["id"], self._id)
        return MeetingEnd.of(no_port_error(self._title(self._own), *no_port(error)))

    def _duplicate(self, name: str, first: str, second: str) -> MeetingEnd:
        return MeetingEnd(
            ClusterStartError.kind,
            "Two processes have the same task of the cluster.",
            f"{self._title(name)} twice: {printable(first)}, and {printable(second)}",
            "Give each process its own task in TF_CONFIG, and stop those of an earlier run.",
        )

    def _title(self, name: str) -> str:
        return f"{name} ({self._tasks.get(name, 'an unknown address')})"

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
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace

from tfdistr.errors import ClusterConfigError, ClusterStartError, TfdistrError
from tfdistr.rendezvous.config import ClusterConfig, cluster_from_env
from tfdistr.rendezvous.lifelines import Lifelines
from tfdistr.rendezvous.pods import kubernetes_cluster_from_env
from tfdistr.rendezvous.protocol import (
    LONGEST,
    MeetingEnd,
    absence_error,
    listening_socket,
    no_port,
    no_port_error,
    parse_message,
    resolves,
    send,
    tell,
    this_process,
)
from tfdistr.rendezvous.roles import NOT_ONE_OF_US, Decision, Follower, Leader, duplicate
from tfdistr.rendezvous.slurm_step import slurm_cluster_from_env
from tfdistr.rendezvous.survey import Survey, answer_at
from tfdistr.rendezvous.tf_config import load_json, split_address
from tfdistr.rendezvous.token import Proofs
from tfdistr.utils.processes import is_session
from tfdistr.utils.warn import NOTE

#: Seconds after which a waiting worker names the workers that are missing.
WAITING_NOTE = 30.0
#: Seconds in which a worker that cannot start still tells workers that join later.
TELLING = 10.0
#: Seconds in which a process that cannot join looks for a worker to tell: workers import TensorFlow first.
SEEKING = 30.0
_RETRY = 0.2
_SAID = 1.0  # seconds until a process that cannot join says that it tells the others
_FIRST = 10.0  # seconds in which a connected process must send its first line
_LINES, _BYTES = 64, 4 * LONGEST  # of one connection; a worker sends one or two lines
_MORE = 256  # connections beside those of the tasks
log = logging.getLogger("tfdistr")


def meet(tasks: Mapping[str, str], own: str, fields: Mapping[str, str], timeout: float) -> Lifelines:
    """Wait until all workers of the cluster have joined, and check that they agree."""
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
    """Return the cluster that TF_CONFIG describes, or else the cluster of Slurm or Kubernetes."""
    try:
        config = cluster_from_env()
    except ClusterConfigError as error:
        peers = _readable_workers(os.environ["TF_CONFIG"])
        if peers:
            telling = tell_of(error, peers)
            if not is_session():
                telling.join(_SAID)
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
    """Tell a waiting worker why this process cannot join. The worker tells the other workers."""
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


class _Meeting:
    """One worker's part in the rendezvous. The leader, or the first worker to find an obstacle, decides."""

    def __init__(self, tasks: Mapping[str, str], own: str, fields: Mapping[str, str], timeout: float) -> None:
        self.over = threading.Event()
        self._timeout = timeout
        self._survey, self._decision = Survey(tasks, own, fields), Decision()
        self._proofs = Proofs()
        self._role = (Leader if self._survey.leads else Follower)(self._survey, self._decision)
        self._open = 0  # connections of others to this worker
        self._failure: BaseException | None = None
        self._cancelled = False

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
        self._cancelled = True
        with contextlib.suppress(AttributeError, RuntimeError):  # it has not begun, or has ended
            self._loop.call_soon_threadsafe(self._running.cancel)

    def lifelines(self) -> Lifelines:
        return Lifelines(self._role.lifelines)

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
        if self._cancelled:  # before there was a loop
            return
        try:
            server = await self._listen()
        except OSError as error:
            self._decision.make(await self._no_port(error))
            await self._finish(None, linger=True)
            return
        try:
            await server.start_serving()
            await self._hold(server)
        finally:
            server.close()

    async def _hold(self, server: asyncio.Server) -> None:
        """Find the other workers, and decide whether they can continue."""
        jobs = (self._survey.resolve(), self._note(), self._role.run())
        work, decision = list(map(asyncio.create_task, jobs)), self._decision
        linger = True
        try:
            async with asyncio.timeout(self._timeout):
                await decision.made.wait()
        except TimeoutError:
            decision.make(await self._too_late())  # if no peer was quicker
            linger = False
        if decision.error is not None:
            raise decision.error
        if decision.end and not decision.heard:
            # Before the connection closes: otherwise the leader would consider this worker lost.
            self._role.report(decision.end)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await self._finish(server, linger=linger)

    async def _finish(self, server: asyncio.Server | None, *, linger: bool) -> None:
        """Tell the peers a result that they do not know, and let the caller continue."""
        survey, end, heard = self._survey, self._decision.end, self._decision.heard
        told = {survey.own}
        if end and (not heard or survey.leads):  # another worker may not know all addresses
            for writer in self._listeners():
                send(writer, {"end": asdict(end)})
                with contextlib.suppress(OSError):
                    await writer.drain()
            told |= set(self._role.hellos)
            await tell(survey.without(told), end, told)
        # Only now: a peer that no longer reaches this worker already knows the reason.
        if server:
            server.close()
        for writer in self._listeners():
            writer.close()
        self._failure = end.error(self._decision.reporter) if end else None
        self.over.set()
        until = time.monotonic() + TELLING
        while end and linger and not heard and survey.without(told) and time.monotonic() < until:
            await asyncio.sleep(_RETRY)
            await tell(survey.without(told), end, told)

    def _listeners(self) -> list[asyncio.StreamWriter]:
        return [*self._role.writers.values(), *self._role.strangers]

    async def _listen(self) -> asyncio.Server:
        listens = await listening_socket(self._survey.tasks[self._survey.own], self._survey.tasks.values())
        # It does not serve yet: without a wait here, no interrupt can leave the socket open.
        return await asyncio.start_server(self._serve, sock=listens, limit=LONGEST, start_serving=False)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name: str | None = None
        nonce, survey = self._proofs.nonce(), self._survey
        self._open += 1
        try:
            if self._open > len(survey.tasks) + _MORE:
                return
            waits = {"waits": self._role.missing, "time": time.time()}
            greeting = {"task": survey.own, "id": survey.id, **waits}
            send(writer, {**greeting, "nonce": nonce, "token": bool(self._proofs)})
            line = await asyncio.wait_for(reader.readline(), _FIRST)
            lines, size = 0, 0
            while line:
                lines, size = lines + 1, size + len(line)
                if lines > _LINES or size > _BYTES:
                    return
                message = parse_message(line)
                if "end" in message:
                    said = {part: message.get(part) for part in ("end", "pass_on")}
                    if name is None and not self._proofs.holds(message.get("proof"), "end", nonce, said):
                        return
                    # A process that cannot join leaves it to this worker to tell the others.
                    place = writer.get_extra_info("peername")[0]
                    known = name is not None and name in survey.tasks
                    reporter = survey.title(str(name)) if known else f"a process at {place}"
                    end, heard = MeetingEnd.heard(message["end"]), message.get("pass_on") is not True
                    self._decision.make(end, heard=heard, reporter=reporter)
                else:
                    name = await self._role.welcome(message, nonce, writer)
                line = await reader.readline()
        except NOT_ONE_OF_US:
            pass
        except asyncio.CancelledError:
            pass  # the rendezvous is over; asyncio would print the error
        finally:
            self._open -= 1
            self._role.leave(name, writer)
            writer.close()

    async def _note(self) -> None:
        """Log from time to time for which tasks this worker waits."""
        pause = WAITING_NOTE
        while True:
            await asyncio.sleep(pause)
            if self._role.logs:
                reasons = await self._survey.reasons(self._role.missing)
                log.warning("%s waits for %s.", self._survey.title(self._survey.own), reasons, extra=NOTE)
            pause *= 2

    async def _too_late(self) -> MeetingEnd:
        survey, missing = self._survey, self._role.missing
        if missing == [survey.leader] or self._survey.unresolved:  # other workers may also be missing
            others = survey.without({survey.own, *missing, *self._role.hellos})
            missing = missing + await self._survey.absent(list(others))
        found = f"waited for {await self._survey.reasons(missing)}"
        return MeetingEnd.of(absence_error(survey.title(survey.own), found, self._timeout))

    async def _no_port(self, error: OSError) -> MeetingEnd:
        survey = self._survey
        answer = await answer_at(survey.tasks[survey.own])
        if answer.greeting is not None and answer.is_of(survey.own):
            return duplicate(survey.title(survey.own), answer.greeting["id"], survey.id)
        return MeetingEnd.of(no_port_error(survey.title(survey.own), *no_port(error)))

"""The driver between a launcher and Ray: it runs a job's workers in Ray actors, and reports on them.

    python driver.py

The first line of standard input is a JSON object with Ray's address and the job's requirements. When the
actors are placed, the launcher answers with a line that has the program of each one; then come signals for
the workers. The end of the input ends everything. Messages on standard output, as of guard.py, report the
actors' places, their workers' states, and failures; Ray's own output goes to standard error.

A separate process keeps Ray's threads, signal handlers and output out of the user's process. The script is
run by its path, and imports no other module of tfdistr: Python does not find the core in the R package.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import math
import os
import pickle
import queue
import runpy
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

_CORE = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
_Lines = runpy.run_path(os.path.join(_CORE, "utils", "log_tail.py"))["LineReader"]
say = runpy.run_path(os.path.join(_CORE, "clusters", "guard.py"))["say"]
_POLL_INTERVAL = 0.2  # seconds between two reads of the input while this process waits for Ray
_WAIT = 0.5  # seconds that an actor waits for news of its worker; a signal waits as long
_GRACE = 10.0  # seconds that Ray has to stop; then this process exits without it
_PATIENCE = 2.0  # seconds of waiting that are not worth a message
_CONNECT = 10.0
_NODE = 2.0


#: A line of the launcher, a message to it, or the facts about a place.
Message = dict[str, Any]


class EndedError(Exception):
    """The launcher has exited, or wants everything to end."""


class RefusedError(Exception):
    """The refusal to start the job; the fields have the reason."""

    def __init__(self, kind: str, **fields: object) -> None:
        super().__init__(kind)
        self.fields = {"refused": kind, **fields}


def room(nodes: Sequence[Mapping[str, float]], need: Mapping[str, float], strategy: str) -> float:
    """Return the number of workers that fit on nodes with these resources."""
    wanted = {name: amount for name, amount in need.items() if amount > 0}
    each = [
        min((math.floor(node.get(name, 0.0) / amount + 1e-9) for name, amount in wanted.items()),
            default=math.inf)
        for node in nodes
    ]  # fmt: skip
    if strategy == "STRICT_SPREAD":
        return sum(1 for places in each if places >= 1)
    return max(each, default=0) if strategy == "STRICT_PACK" else sum(each)


class Input:
    """The lines of the launcher, which a thread reads."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(json.loads(line))
        self.ended = True
        time.sleep(_GRACE)
        os._exit(1)  # Ray does not stop; without its driver it kills the actors

    def all(self) -> list[Message]:
        """Return the lines since the last call; ``EndedError`` if the launcher wants everything to end."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._lines.get_nowait())
        if self.ended:
            raise EndedError
        return found

    def next(self) -> Message:
        """Wait for the next line, and return it."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self._lines.get(timeout=_POLL_INTERVAL)
            if self.ended:
                raise EndedError


class WorkerActor:
    """The actor of a worker. Its guard (guard.py) kills the worker when the actor exits."""

    def look(self, log: str, core: str) -> Message:
        """Return the name of this node, and whether it sees the run directory and tfdistr."""
        import importlib.util

        import ray

        found = core if os.path.isdir(core) else None
        if found is None and (spec := importlib.util.find_spec("tfdistr")) and spec.origin:
            found = os.path.dirname(spec.origin)
        return {
            "node": ray.get_runtime_context().get_node_id(), "address": ray.util.get_node_ip_address(),
            "host": socket.gethostname(), "python": sys.executable, "core": found,
            "sees": os.path.isfile(log),
        }  # fmt: skip

    def ports(self, core: str, count: int) -> list[int]:
        """Ports of this host that are free."""
        sys.path.insert(0, os.path.dirname(core))
        from tfdistr.network.ports import free_ports

        return free_ports(count)

    def start(self, command: list[str], log: str, spec: Message) -> None:
        """Start the guard, and with it the worker."""
        import subprocess

        with open(log, "wb", buffering=0) as output:
            self.guard = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, start_new_session=True
            )
        assert self.guard.stdout is not None
        os.set_blocking(self.guard.stdout.fileno(), False)
        self._write(spec)

    def _write(self, word: object) -> None:
        assert self.guard.stdin is not None
        with contextlib.suppress(OSError):  # it has exited
            self.guard.stdin.write(b"\n" if word is None else json.dumps(word).encode() + b"\n")
            self.guard.stdin.flush()

    def exchange(self, signals: list[int], wait: float) -> tuple[bytes, bool]:
        """Forward signals to the guard. Return its output within ``wait`` seconds, and if it has exited."""
        import select

        for number in signals:
            self._write({"signal": number})
        self._write(None)  # the launcher is alive
        assert self.guard.stdout is not None
        select.select([self.guard.stdout], [], [], wait)
        received, ended = b"", False
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.guard.stdout.fileno(), 1 << 16):
                received += chunk
            ended = True
        return received, ended


class Driver:
    """The actors of a job."""

    def __init__(self, spec: Message, said: Input) -> None:
        self._spec, self._input = spec, said
        self._group: Any = None
        self._actors: list[Any] = []
        self._nodes: list[str] = []
        self._folder: str | None = None

    def run(self) -> None:
        """Run the job."""
        self.connect()
        self.place()
        facts = self.look()
        say(placed=facts)
        self.watch(self._input.next()["start"])

    # --- The start

    def connect(self) -> None:
        """Join Ray's cluster, or start one on this machine."""
        import ray

        address = self._spec["address"]
        _, _, place = address.rpartition("//")
        host, _, port = place.rpartition(":")
        if port.isdecimal():
            try:
                socket.create_connection((host.strip("[]"), int(port)), _CONNECT).close()
            except OSError as error:
                raise RefusedError("no_answer", why=str(error.strerror or error)) from error
        if address == "local":
            self._folder = os.environ["RAY_TMPDIR"] = _short_folder()
        try:
            ray.init(
                address=address, runtime_env=self._spec["runtime_env"], log_to_driver=False,
                logging_level=logging.ERROR, include_dashboard=False if address == "local" else None,
            )  # fmt: skip
        except (ConnectionError, TimeoutError) as error:
            raise RefusedError("no_answer", why=_first_line(error)) from error
        except Exception as error:
            raise RefusedError("init", why=_first_line(error)) from error

    def place(self) -> None:
        """Reserve the resources of all workers, and wait for them."""
        from ray.util.placement_group import placement_group

        if self._spec["group"] is not None:
            self._group = pickle.loads(base64.b64decode(self._spec["group"]))
            return
        bundles = [self._spec["resources"]] * self._spec["workers"]
        self._group = placement_group(bundles, strategy=self._spec["strategy"])
        began, timeout, told, scarce = time.monotonic(), self._spec["timeout"], False, 0
        while not self._group.wait(_POLL_INTERVAL):
            self._input.all()
            waited = time.monotonic() - began
            # A lost node may still be counted at the first poll.
            scarce = scarce + 1 if self._room() < self._spec["workers"] else 0
            if timeout is None and scarce * _POLL_INTERVAL >= 1.0:
                raise RefusedError("too_small", **self._resources())
            if timeout is not None and waited > timeout:
                raise RefusedError("no_place", waited=timeout, **self._resources())
            if waited > _PATIENCE and not told:
                told = True
                say(news="waits", **self._resources())

    def _alive(self) -> list[Message]:
        import ray

        return [node for node in ray.nodes() if node["Alive"]]

    def _room(self) -> float:
        resources = [node["Resources"] for node in self._alive()]
        return room(resources, self._spec["resources"], self._spec["strategy"])

    def _resources(self) -> Message:
        """Return the total and the free amounts of the resources that the workers need."""
        import ray

        names = list(self._spec["resources"])
        free = ray.available_resources()
        nodes = [
            {"host": node["NodeManagerHostname"], **{name: node["Resources"].get(name, 0) for name in names}}
            for node in self._alive()
        ]
        return {"nodes": nodes, "free": {name: free.get(name, 0) for name in names}}

    def look(self) -> list[Message]:
        """Start the actors, and ask each what its node has."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        need = dict(self._spec["resources"])
        first = 0 if self._spec["group"] is None else 1  # in the user's group the caller has the first place
        options = {"num_cpus": need.pop("CPU", 0), "num_gpus": need.pop("GPU", 0), "max_restarts": 0,
                   "memory": need.pop("memory", None), "resources": need}  # fmt: skip
        make = ray.remote(WorkerActor)
        for index in range(self._spec["workers"]):
            at = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=first + index)
            self._actors.append(make.options(scheduling_strategy=at, **options).remote())
        log, core = self._spec["log"], self._spec["core"]
        facts = self._all([actor.look.remote(log, core) for actor in self._actors])
        self._nodes = [each["node"] for each in facts]
        if all(each["core"] and each["sees"] for each in facts):
            self._add_ports(facts)
        return facts

    def _add_ports(self, facts: list[Message]) -> None:
        """Let one actor of each host find the ports of all workers there: two could find the same."""
        of_host: dict[str, list[int]] = {}
        for index, each in enumerate(facts):
            of_host.setdefault(each["address"], []).append(index)
        asked = [
            self._actors[there[0]].ports.remote(facts[there[0]]["core"], len(there))
            for there in of_host.values()
        ]
        for there, ports in zip(of_host.values(), self._all(asked), strict=True):
            for index, port in zip(there, ports, strict=True):
                facts[index]["port"] = port

    def _all(self, references: list[Any]) -> list[Any]:
        """Wait for the values of references, and return them."""
        import ray

        until = time.monotonic() + self._spec["start_timeout"]
        left = references
        while left:
            _, left = ray.wait(left, num_returns=len(left), timeout=_POLL_INTERVAL)
            self._input.all()
            if left and time.monotonic() > until:
                raise RefusedError("slow", count=len(left), waited=self._spec["start_timeout"])
        try:
            return list(ray.get(references))
        except ray.exceptions.RayError as error:
            raise RefusedError("actor", why=_why(error)) from error

    # --- The work

    def watch(self, starts: list[Message]) -> None:
        """Start the workers, and report their states until the launcher ends this."""
        import ray

        # An actor does one call after the other.
        for actor, start in zip(self._actors, starts, strict=True):
            actor.start.remote(start["guard"], start["log"], start["spec"])
        signals: dict[int, list[int]] = {index: [] for index in range(len(self._actors))}
        outputs = [_Lines() for _ in self._actors]
        asked = {actor.exchange.remote([], _WAIT): index for index, actor in enumerate(self._actors)}
        while True:
            for word in self._input.all():
                signals[word["rank"]].append(word["signal"])
            if not asked:
                time.sleep(_POLL_INTERVAL / 2)
                continue
            ready, _ = ray.wait(list(asked), num_returns=1, timeout=_POLL_INTERVAL)
            for reference in ready:
                index = asked.pop(reference)
                try:
                    received, ended = ray.get(reference)
                except ray.exceptions.RayError as error:
                    self._lose(index, error)
                    continue
                say(rank=index, lines=outputs[index].take(received), ended=ended)
                if not ended:
                    sent, signals[index] = signals[index], []
                    asked[self._actors[index].exchange.remote(sent, _WAIT)] = index

    def _lose(self, index: int, error: Exception) -> None:
        """Report that an actor is lost, maybe with its node."""
        node, why = self._nodes[index], _why(error)
        gone = "node has died" in str(error) or not any(
            each["NodeID"] == node and _answers(each) for each in self._alive()
        )
        say(rank=index, lost="node" if gone else "actor", node=node, why=why)

    # --- The end

    def end(self) -> None:
        """End the actors, and with them the workers, and leave Ray."""
        import ray
        from ray.util.placement_group import remove_placement_group

        for actor in self._actors:
            with contextlib.suppress(Exception):
                ray.kill(actor)
        if self._group is not None and self._spec["group"] is None:
            with contextlib.suppress(Exception):
                remove_placement_group(self._group)
        ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _answers(node: Message) -> bool:
    """Return whether Ray answers on a node; Ray itself tries a few times before it counts a node as lost."""
    try:
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), _NODE).close()
    except OSError:
        return False
    return True


def _short_folder() -> str:
    """Create a temporary folder. Ray needs 70 of the 107 characters that a socket path may have."""
    parent = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="ray-", dir=parent if len(parent) <= 24 else "/tmp")


def _first_line(error: BaseException) -> str:
    return next(filter(None, (line.strip() for line in str(error).splitlines())), type(error).__name__)


def _why(error: BaseException) -> str:
    """Return Ray's message about a lost actor, without the lines that only identify it."""
    plain = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "\n".join(line for line in plain if not line.startswith(("class_name:", "actor_id:", "pid:",
                                                                    "namespace:", "ip:")))  # fmt: skip


def main() -> None:
    """Run a job."""
    said = Input()
    with contextlib.suppress(EndedError):
        driver = Driver(said.next(), said)
        try:
            driver.run()
        except RefusedError as refused:
            say(**refused.fields)
            while True:  # the launcher ends this when it has read it
                said.next()
        finally:
            driver.end()


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    os._exit(0)

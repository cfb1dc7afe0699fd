"""Workers that Ray actors run: the process that connects to Ray, its reports, and the errors."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tfdistr.clusters.ray import driver
from tfdistr.clusters.remote_worker import (
    Message,
    ProgramOutput,
    RemoteJob,
    RemoteWorker,
    message_in,
    quoted_lines,
    unseen_run_dir,
)
from tfdistr.clusters.worker_process import log_path, lost_worker_error
from tfdistr.errors import ClusterStartError, WorkerFailedError
from tfdistr.network.loopback import Loopback
from tfdistr.utils.describe import number_of
from tfdistr.utils.log_tail import last_lines
from tfdistr.utils.processes import wait_or_kill

_REAP = 20.0  # seconds that the driver has to exit after the request; then it is killed
_LINES = 10
#: A function from the actors' places to the programs of the actors.
Plan = Callable[[Sequence[Message]], Sequence[Message]]


class RayJob(RemoteJob):
    """The process that connects to Ray, and its workers; ``plan`` gives the programs of the placed actors."""

    waits = True

    def __init__(self, spec: Message, plan: Plan, run_dir: str | os.PathLike[str]) -> None:
        folder = Path(run_dir).absolute()
        super().__init__(folder, range(spec["workers"]), "a Ray node")
        self._spec, self._plan = spec, plan
        self._log = log_path(folder, 0).with_name("ray.log")
        self._closing = self._started = False
        self._ports: list[int] = []
        with self._log.open("wb") as output:
            self._driver = subprocess.Popen(
                [sys.executable, "-P", driver.__file__], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=output, start_new_session=True, env=_without_actor(os.environ),
            )  # fmt: skip
        self._output = ProgramOutput(self._driver.stdout)
        self._write({**spec, "log": os.fspath(self._log)})

    def _write(self, word: Message) -> None:
        assert self._driver.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has exited, or is about to
            self._driver.stdin.write(f"{json.dumps(word)}\n".encode())
            self._driver.stdin.flush()

    def look(self) -> None:
        """Read the output of the driver since the last call."""
        status = self._driver.poll()
        for line in self._output.lines():
            if message := message_in(line):
                self._take(message)
        if status is not None:
            self._end(status)

    def _take(self, message: Message) -> None:
        if "refused" in message:
            self.fail(refused_start(message, self._spec))
            self.end_all()
        elif "news" in message:
            needed = _had(message, self._spec)
            self.notices.append(f"Ray has no free resources for all workers yet: {needed}.")
        elif "placed" in message:
            self._start(message["placed"])
        elif "lost" in message:
            self._lose(self.workers[message["rank"]], message)
        else:
            self._hear(self.workers[message["rank"]], message)

    def _hear(self, worker: RemoteWorker, message: Message) -> None:
        """Process the output of a worker's guard, which may be empty."""
        for said in ({}, *map(message_in, message["lines"])):
            worker.take(said)
            if "open_because" in said:  # the workers are all on one machine
                Loopback("none", (said["open_because"],)).warn(
                    self._ports, machine=worker.host, cluster="ray_cluster()"
                )
        if message["ended"]:
            worker.end(1)

    def _start(self, facts: Sequence[Message]) -> None:
        for worker, fact in zip(self.workers, facts, strict=True):
            worker.begin(fact["host"])
            if not fact["core"] or not fact["sees"]:
                folder = os.fspath(self._log.parent.parent)
                self.fail(
                    unseen_run_dir(folder, worker.host, worker.index) if fact["core"] else _no_core(worker),
                    worker,
                )
                self.end_all()
                return
        self._started, self._ports = True, [fact["port"] for fact in facts]
        self._write({"start": list(self._plan(facts))})

    def _lose(self, worker: RemoteWorker, message: Message) -> None:
        if worker.exit_code is None:
            self.fail(lost_actor_error(worker, message, len(self.workers)))
            worker.end(1)

    def _end(self, status: int) -> None:
        """Record that the driver has exited."""
        if not self._closing and self.running:
            said = quoted_lines(last_lines(self._log, _LINES))
            self.fail(
                WorkerFailedError(
                    f"The workers were lost with their connection to Ray, which exited with status {status}."
                    f"\n\nIts last lines:\n{said}",
                    worker=None,
                    host="unknown",
                    log=os.fspath(self._log),
                    fix="Check that Ray's head node runs and is reachable (ray status).",
                )
            )
        self.end_all()

    def send(self, worker: RemoteWorker, number: signal.Signals) -> None:
        """Send a signal to a worker. If no worker has started, everything ends."""
        if self._started:
            self._write({"rank": worker.index, "signal": int(number)})
        else:
            self._close()
            self.end_all()

    def _close(self) -> None:
        self._closing = True
        assert self._driver.stdin is not None
        with contextlib.suppress(OSError):
            self._driver.stdin.close()

    def reap(self) -> None:
        """Wait until the driver, and with it the actors, have exited."""
        self.look()
        self._close()
        wait_or_kill(self._driver, _REAP)  # Ray kills the actors of a killed driver
        self.look()
        self._output.close()


def _without_actor(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Ray's variables for actors: the caller may be one."""
    own = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_ADDRESS", "RAY_CLIENT_MODE")
    return {name: value for name, value in env.items() if name not in own}


_MORE = (
    "Request fewer workers, or less for each, stop other jobs, or add nodes. Pass a larger `start_timeout` "
    "to wait for nodes."
)
#: The errors for what the driver refuses: the rule, the received value, the fix.
_REFUSALS = {
    "no_answer": (
        "The address of ray_cluster() must be the address of a running Ray cluster.",
        "{address}, where none answers: {why}",
        "Start Ray there (ray start --head), or leave `address` out and unset RAY_ADDRESS to start Ray on "
        "this machine for the job.",
    ),
    "init": (
        "Ray has rejected the job.",
        "Ray says: {why}",
        "See this text for the reason, such as a part of `runtime_env`.",
    ),
    "too_small": ("The Ray cluster does not have the resources that the workers need.", "{had}", _MORE),
    "no_place": ("The Ray cluster had no resources for the workers within {waited:g} s.", "{had}", _MORE),
    "slow": (
        "Ray did not start the actor of each worker within {waited:g} s.",
        "{count} of {workers} actors did not start in time",
        "Pass a larger `start_timeout`, for a `runtime_env` that takes long to install, for example.",
    ),
    "actor": (
        "Ray did not start an actor for each worker.",
        "Ray says: {why}",
        "See this text for the reason: each node needs this version of Python and of Ray, and must be able "
        "to install `runtime_env`.",
    ),
}


def refused_start(message: Message, spec: Message) -> ClusterStartError:
    """Return the error for a job that the driver has refused."""
    scarce = "nodes" in message
    values = {**spec, **message, "had": _had(message, spec) if scarce else ""}
    rule, received, fix = (text.format_map(values) for text in _REFUSALS[message["refused"]])
    error = ClusterStartError(rule, received=received, fix=fix)
    if scarce:  # a job that continues with fewer workers drops the last
        error.worker, error.host = spec["workers"] - 1, "a Ray node"
    return error


def _had(message: Message, spec: Message) -> str:
    """Describe what the workers need, and what the nodes have."""
    need = f"{number_of(spec['workers'], 'worker')} with {_amounts(spec['resources'])} each"
    nodes = "; ".join(
        f"{node['host']} with {_amounts({n: a for n, a in node.items() if n != 'host'})}"
        for node in message["nodes"]
    )
    return f"{need} ({spec['strategy']}), and the nodes {nodes}; free: {_amounts(message['free'])}"


def _amounts(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items())


def lost_actor_error(worker: RemoteWorker, message: Message, workers: int) -> WorkerFailedError:
    """Return the error for a worker whose actor or node is lost."""
    node = f"node {message['node']}"
    what = f"with Ray {node}" if message["lost"] == "node" else f"with its Ray actor on {node}"
    said = "\n".join(f"  {line}" for line in message["why"].splitlines()[:_LINES])
    return lost_worker_error(
        worker,
        f"Worker {worker.index} of {workers} on {worker.host} was lost {what}.\n\nRay says:\n{said}",
        fix="Check that the node runs (ray status). Pass failures=on_failure(max_restarts=3) and "
        "`checkpoint_every` to resume from the last checkpoint on the remaining nodes.",
    )


def _no_core(worker: RemoteWorker) -> ClusterStartError:
    return ClusterStartError(
        "Each Ray node must have tfdistr.",
        received=f"none on {worker.host} (worker {worker.index})",
        fix="Install it there as here, or name it in runtime_env={'pip': [...]}.",
    )

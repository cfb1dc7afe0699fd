"""Workers that actors of Ray run: the process that speaks to Ray, what it reports, and the errors."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfdistr.clusters.hosts import unseen_run_dir
from tfdistr.clusters.program_output import ProgramOutput
from tfdistr.clusters.ray import driver
from tfdistr.clusters.remote_worker import RemoteJob, RemoteWorker, message_in, quoted
from tfdistr.clusters.worker_process import log_path, lost_worker_error
from tfdistr.errors import ClusterStartError, WorkerFailedError
from tfdistr.network.loopback import Loopback
from tfdistr.utils.log_tail import last_lines
from tfdistr.utils.processes import wait_or_kill

_REAP = 20.0  # seconds that the driver has to end after the request; then it is killed
_LINES = 10
#: Has the actors' places; returns what each actor starts.
Plan = Callable[[Sequence[Mapping[str, Any]]], Sequence[Mapping[str, Any]]]


class RayJob(RemoteJob):
    """The process that speaks to Ray, and its workers.

    Args:
        spec: What the process is told; see driver.py.
        plan: Says what each actor starts, when Ray has placed them all.
        run_dir: The directory of the run.
    """

    waits = True

    def __init__(self, spec: Mapping[str, Any], plan: Plan, run_dir: str | os.PathLike[str]) -> None:
        folder = Path(run_dir).absolute()
        super().__init__(folder, range(spec["workers"]), "a node of Ray")
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

    def _write(self, word: Mapping[str, Any]) -> None:
        assert self._driver.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended, or is about to
            self._driver.stdin.write(f"{json.dumps(word)}\n".encode())
            self._driver.stdin.flush()

    def look(self) -> None:
        """Read what the driver has said since the last call."""
        status = self._driver.poll()
        for line in self._output.lines():
            if message := message_in(line, driver.MARK):
                self._take(message)
        if status is not None:
            self._end(status)

    def _take(self, message: Mapping[str, Any]) -> None:
        if "refused" in message:
            self.fail(refusal(message, self._spec))
            self.end_all()
        elif "news" in message:
            self.notices.append(f"Ray has no free place for all workers yet: {_had(message, self._spec)}.")
        elif "placed" in message:
            self._start(message["placed"])
        elif "lost" in message:
            self._lose(self.workers[message["rank"]], message)
        else:
            self._hear(self.workers[message["rank"]], message)

    def _hear(self, worker: RemoteWorker, message: Mapping[str, Any]) -> None:
        """Process what the guard of a worker says, which may be nothing."""
        for said in ({}, *map(message_in, message["lines"])):
            worker.take(said)
            if "open_because" in said:  # the workers are all on one machine
                Loopback("none", (said["open_because"],)).warn(
                    self._ports, machine=worker.host, cluster="ray_cluster()"
                )
        if message["ended"]:
            worker.end(1)

    def _start(self, facts: Sequence[Mapping[str, Any]]) -> None:
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

    def _lose(self, worker: RemoteWorker, message: Mapping[str, Any]) -> None:
        if worker.exit_code is None:
            self.fail(lost_actor_error(worker, message, len(self.workers)))
            worker.end(1)

    def _end(self, status: int) -> None:
        """Note that the driver has ended."""
        if not self._closing and self.running:
            said = quoted(last_lines(self._log, _LINES))
            self.fail(
                WorkerFailedError(
                    f"The workers were lost with their connection to Ray, which exited with status {status}."
                    f"\n\nIts last lines:\n{said}",
                    worker=None,
                    host="unknown",
                    log=os.fspath(self._log),
                    fix="See whether the head node of Ray runs and can be reached (ray status).",
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
        """Wait until the driver, and with it the actors, have ended."""
        self.look()
        self._close()
        wait_or_kill(self._driver, _REAP)  # Ray ends the actors of a driver that was killed
        self.look()
        self._output.close()


def _without_actor(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what Ray tells an actor: the caller may be one."""
    own = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_ADDRESS", "RAY_CLIENT_MODE")
    return {name: value for name, value in env.items() if name not in own}


_ROOM = "The Ray cluster must have the resources that the workers need, "
_MORE = (
    "Ask for fewer workers or for less in `resources_per_worker`, end other jobs, or add nodes. With "
    "`start_timeout` it waits as long for nodes that are yet to come."
)
#: The errors for what the driver refuses: the rule, the received value, the fix.
_REFUSALS = {
    "no_answer": (
        "The address of ray_cluster() must be the address of a Ray cluster that runs.",
        "{address}, where none answers: {why}",
        "Start Ray there (ray start --head), or leave `address` out and unset RAY_ADDRESS: a Ray on this "
        "machine is then started for the job.",
    ),
    "init": (
        "Ray must accept the job.",
        "Ray says: {why}",
        "See in this text what Ray names, such as a part of `runtime_env`.",
    ),
    "too_small": (_ROOM + "on nodes that it has.", "{had}", _MORE),
    "no_place": (_ROOM + "within {waited:g} s.", "{had}", _MORE),
    "slow": (
        "Ray must start the actor of each worker within {waited:g} s.",
        "{count} of {workers} actors did not start in time",
        "Pass a larger `start_timeout`, for a `runtime_env` that takes long to install, for example.",
    ),
    "actor": (
        "Ray must start an actor for each worker.",
        "Ray says: {why}",
        "See in this text what Ray names: each node must have this version of Python and of Ray, and "
        "`runtime_env` must be what it can install.",
    ),
}


def refusal(message: Mapping[str, Any], spec: Mapping[str, Any]) -> ClusterStartError:
    """Return the error for a job that the driver has refused."""
    scarce = "nodes" in message
    values = {**spec, **message, "had": _had(message, spec) if scarce else ""}
    rule, received, fix = (text.format_map(values) for text in _REFUSALS[message["refused"]])
    error = ClusterStartError(rule, received=received, fix=fix)
    if scarce:  # a job that continues with fewer workers does so without the last
        error.worker, error.host = spec["workers"] - 1, "a node of Ray"
    return error


def _had(message: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Describe what the workers need, and what the nodes have."""
    need = _amounts(spec["resources"])
    nodes = "; ".join(
        f"{node['host']} with {_amounts({n: a for n, a in node.items() if n != 'host'})}"
        for node in message["nodes"]
    )
    count = spec["workers"]
    return (
        f"{count} worker{'s' * (count != 1)} with {need} each ({spec['strategy']}), and the nodes {nodes}; "
        f"free: {_amounts(message['free'])}"
    )


def _amounts(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items())


def lost_actor_error(worker: RemoteWorker, message: Mapping[str, Any], workers: int) -> WorkerFailedError:
    """Return the error for a worker whose actor or node is lost."""
    node = f"node {message['node']}"
    what = f"with {node} of Ray" if message["lost"] == "node" else f"with its actor of Ray on {node}"
    said = "\n".join(f"  {line}" for line in message["why"].splitlines()[:_LINES])
    return lost_worker_error(
        worker,
        f"Worker {worker.index} of {workers} on {worker.host} was lost {what}.\n\nRay says:\n{said}",
        fix="See whether the node runs (ray status). With `max_restarts` and `checkpoint_every` the job "
        "continues from its last checkpoint on the nodes that are left.",
    )


def _no_core(worker: RemoteWorker) -> ClusterStartError:
    return ClusterStartError(
        "Each node of Ray must have tfdistr.",
        received=f"none on {worker.host} (worker {worker.index})",
        fix="Install it there as here, or name it in runtime_env={'pip': [...]}.",
    )

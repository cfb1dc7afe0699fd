"""Workers that actors of Ray run: the process that speaks to Ray, what it reports, and the errors."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfdistr.clusters.hosts import not_started, unseen_run_dir
from tfdistr.clusters.rank_guard import MARK
from tfdistr.clusters.ray import driver
from tfdistr.clusters.worker_process import log_path
from tfdistr.errors import ClusterStartError, TfdistrError, WorkerFailedError
from tfdistr.network.loopback import Loopback
from tfdistr.utils.log_tail import last_lines

_REAP = 20.0  # seconds that the driver has to end after the request; then it is killed
_CHUNK = 1 << 16
_LINES = 10
#: Has the actors' places; returns what each actor starts.
Plan = Callable[[Sequence[Mapping[str, Any]]], Sequence[Mapping[str, Any]]]


class RayWorker:
    """A worker that an actor of Ray runs, with the interface of `Worker`.

    Args:
        job: The job of which it is a part.
        index: The index of the worker.
        run_dir: The directory of the run.
    """

    def __init__(self, job: RayJob, index: int, run_dir: Path) -> None:
        self.index = index
        self.host = "a node of Ray"
        self.node = ""
        self.pid = 0  # until it has started
        self.log = log_path(run_dir, index)
        self.exit_code: int | None = None
        self.is_stopped = False
        self._job = job
        self._heard: float | None = None
        self._started: float | None = None
        self._ended = 0.0

    @property
    def seconds(self) -> float:
        """Seconds from its start to its end, or until now; 0 while Ray has no place for it."""
        if self._started is None:
            return 0.0
        return (time.monotonic() if self.exit_code is None else self._ended) - self._started

    @property
    def silent_for(self) -> float:
        """Seconds since its last heartbeat; 0 if it has not given any yet, or has ended."""
        return 0.0 if self._heard is None or self.exit_code is not None else time.monotonic() - self._heard

    def place(self, fact: Mapping[str, Any]) -> None:
        """Note where it runs, from now on."""
        self.host, self.node, self._started = fact["host"], fact["node"], time.monotonic()

    def poll(self) -> int | None:
        """Check whether it has ended."""
        self._job.look()
        return self.exit_code

    def take(self, lines: Sequence[str], ended: bool) -> None:
        """Process what its guard says; ``ended`` if the guard has ended."""
        self._heard = time.monotonic()
        for line in lines:
            message = json.loads(line.removeprefix(MARK)) if line.startswith(MARK) else {}
            self.pid = message.get("pid", self.pid)
            self.is_stopped = message.get("stopped", self.is_stopped)
            if "open_because" in message:
                self._job.warn_open(self.host, message["open_because"])
            if "failed" in message:
                self._job.fail(not_started(self.index, self.host, message["failed"]), self)
                self.end(1)
            if "exit_code" in message:
                self.end(message["exit_code"])
        if ended:
            self.end(1)

    def end(self, exit_code: int) -> None:
        """Note that it has ended."""
        if self.exit_code is None:
            self.exit_code, self._ended = exit_code, time.monotonic()

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to it and to the processes that it started."""
        self._job.send(self.index, number)

    def warn(self) -> None:
        """Send SIGTERM, as a scheduler does some time before it ends a process."""
        self.signal_group(signal.SIGTERM)

    def reap(self) -> None:
        """Wait until its actor has ended."""
        self._job.reap()

    def launch_error(self) -> TfdistrError | None:
        """The error if it could not be started, or was lost."""
        return self._job.failure

    def news(self) -> list[str]:
        """What the user should know of the place for the workers."""
        return self._job.news()


class RayJob:
    """The process that speaks to Ray, and its workers.

    Args:
        spec: What the process is told; see ray_driver.py.
        plan: Says what each actor starts, when Ray has placed them all.
        run_dir: The directory of the run.
    """

    def __init__(self, spec: Mapping[str, Any], plan: Plan, run_dir: str | os.PathLike[str]) -> None:
        self.failure: TfdistrError | None = None
        self._spec, self._plan = spec, plan
        folder = Path(run_dir).absolute()
        self.workers = [RayWorker(self, index, folder) for index in range(spec["workers"])]
        self._log = log_path(folder, 0).with_name("ray.log")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        for worker in self.workers:
            worker.log.unlink(missing_ok=True)  # of an earlier run
        self._rest = b""
        self._news: list[str] = []
        self._closing = self._started = False
        self._ports: list[int] = []
        with self._log.open("wb") as output:
            self._driver = subprocess.Popen(
                [sys.executable, "-P", driver.__file__], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=output, start_new_session=True, env=_without_actor(os.environ),
            )  # fmt: skip
        assert self._driver.stdout is not None
        os.set_blocking(self._driver.stdout.fileno(), False)
        self._write({**spec, "log": os.fspath(self._log)})

    def _write(self, word: Mapping[str, Any]) -> None:
        assert self._driver.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended, or is about to
            self._driver.stdin.write(f"{json.dumps(word)}\n".encode())
            self._driver.stdin.flush()

    def look(self) -> None:
        """Read what the driver has said since the last call."""
        status = self._driver.poll()
        assert self._driver.stdout is not None
        with contextlib.suppress(BlockingIOError, ValueError):  # nothing is there, or it is closed
            while received := os.read(self._driver.stdout.fileno(), _CHUNK):
                *lines, self._rest = (self._rest + received).split(b"\n")
                for line in lines:
                    text = line.decode(errors="replace")
                    if text.startswith(driver.MARK):
                        self._take(json.loads(text.removeprefix(driver.MARK)))
        if status is not None:
            self._end(status)

    def _take(self, message: Mapping[str, Any]) -> None:
        if "refused" in message:
            self.fail(refusal(message, self._spec))
            self._end_all()
        elif "news" in message:
            self._news.append(f"Ray has no free place for all workers yet: {_had(message, self._spec)}.")
        elif "placed" in message:
            self._start(message["placed"])
        elif "lost" in message:
            self._lose(self.workers[message["rank"]], message)
        else:
            self.workers[message["rank"]].take(message["lines"], message["ended"])

    def _start(self, facts: Sequence[Mapping[str, Any]]) -> None:
        for worker, fact in zip(self.workers, facts, strict=True):
            worker.place(fact)
            if not fact["core"] or not fact["sees"]:
                folder = os.fspath(self._log.parent.parent)
                error = (
                    unseen_run_dir(folder, worker.host, worker.index) if fact["core"] else _no_core(worker)
                )
                self.fail(error, worker)
                self._end_all()
                return
        self._started, self._ports = True, [fact["port"] for fact in facts]
        self._write({"start": list(self._plan(facts))})

    def _lose(self, worker: RayWorker, message: Mapping[str, Any]) -> None:
        if worker.exit_code is None:
            self.fail(lost_error(worker, message, len(self.workers)))
            worker.end(1)

    def warn_open(self, host: str, reason: str) -> None:
        """Warn that nothing keeps other machines from the workers, which are all on one machine."""
        Loopback("none", (reason,)).warn(self._ports, machine=host, cluster="ray_cluster()")

    def fail(self, error: TfdistrError, worker: RayWorker | None = None) -> None:
        """Note the first error."""
        if worker is not None and isinstance(error, ClusterStartError):
            error.worker, error.host = worker.index, worker.host
        self.failure = self.failure or error

    def _end(self, status: int) -> None:
        """Note that the driver has ended."""
        if not self._closing and any(worker.exit_code is None for worker in self.workers):
            said = "\n".join(f"  {line}" for line in last_lines(self._log, _LINES)) or "  (nothing)"
            self.fail(
                WorkerFailedError(
                    f"The workers were lost with their connection to Ray, which ended with status {status}."
                    f"\n\nIts last lines:\n{said}",
                    worker=None,
                    host="unknown",
                    log=os.fspath(self._log),
                    fix="See whether the head node of Ray runs and can be reached (ray status).",
                )
            )
        self._end_all()

    def _end_all(self) -> None:
        for worker in self.workers:
            worker.end(1)

    def send(self, index: int, number: signal.Signals) -> None:
        """Send a signal to a worker. If no worker has started, everything ends."""
        if self._started:
            self._write({"rank": index, "signal": int(number)})
        else:
            self._close()
            self._end_all()

    def _close(self) -> None:
        self._closing = True
        assert self._driver.stdin is not None
        with contextlib.suppress(OSError):
            self._driver.stdin.close()

    def reap(self) -> None:
        """Wait until the driver, and with it the actors, have ended."""
        self.look()
        self._close()
        try:
            self._driver.wait(_REAP)
        except subprocess.TimeoutExpired:
            self._driver.kill()  # then Ray ends the actors
            self._driver.wait()
        self.look()
        assert self._driver.stdout is not None
        self._driver.stdout.close()

    def news(self) -> list[str]:
        """What the user should know since the last call."""
        told, self._news = self._news, []
        return told


def _without_actor(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without what Ray tells an actor: the caller may be one."""
    own = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_ADDRESS", "RAY_CLIENT_MODE")
    return {name: value for name, value in env.items() if name not in own}


def refusal(message: Mapping[str, Any], spec: Mapping[str, Any]) -> ClusterStartError:
    """The error for a job that the driver has refused."""
    kind = message["refused"]
    if kind == "no_answer":
        return ClusterStartError(
            "The address of ray_cluster() must be the address of a Ray cluster that runs.",
            received=f"{spec['address']}, where none answers: {message['why']}",
            fix="Start Ray there (ray start --head), or leave `address` out and unset RAY_ADDRESS: a Ray on "
            "this machine is then started for the job.",
        )
    if kind == "init":
        return ClusterStartError(
            "Ray must accept the job.",
            received=f"Ray says: {message['why']}",
            fix="See in this text what Ray names, such as a part of `runtime_env`.",
        )
    if kind in ("too_small", "no_place"):
        return _no_room(message, spec)
    if kind == "slow":
        return ClusterStartError(
            f"Ray must start the actor of each worker within {message['waited']:g} s.",
            received=f"{message['count']} of {spec['workers']} actors did not start in time",
            fix="Pass a larger `start_timeout`, for a `runtime_env` that takes long to install, for example.",
        )
    return ClusterStartError(
        "Ray must start an actor for each worker.",
        received=f"Ray says: {message['why']}",
        fix="See in this text what Ray names: each node must have this version of Python and of Ray, and "
        "`runtime_env` must be what it can install.",
    )


def _no_room(message: Mapping[str, Any], spec: Mapping[str, Any]) -> ClusterStartError:
    error = ClusterStartError(
        "The Ray cluster must have the resources that the workers need, "
        + (
            "on nodes that it has."
            if message["refused"] == "too_small"
            else f"within {message['waited']:g} s."
        ),
        received=_had(message, spec),
        fix="Ask for fewer workers or for less in `resources_per_worker`, end other jobs, or add nodes. With "
        "`start_timeout` it waits as long for nodes that are yet to come.",
    )
    # A job that continues with fewer workers does so without the last.
    error.worker, error.host = spec["workers"] - 1, "a node of Ray"
    return error


def _had(message: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """What the workers need, and what the nodes have."""
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


def lost_error(worker: RayWorker, message: Mapping[str, Any], workers: int) -> WorkerFailedError:
    """The error for a worker whose actor or node is lost."""
    node = f"node {message['node']}"
    what = f"with {node} of Ray" if message["lost"] == "node" else f"with its actor of Ray on {node}"
    said = "\n".join(f"  {line}" for line in message["why"].splitlines()[:_LINES])
    return WorkerFailedError(
        f"Worker {worker.index} of {workers} on {worker.host} was lost {what}.\n\nRay says:\n{said}\n\n"
        f"Its log: {worker.log}",
        worker=worker.index,
        host=worker.host,
        pid=worker.pid or None,
        log=str(worker.log),
        fix="See whether the node runs (ray status). With `max_restarts` and `checkpoint_every` the job "
        "continues from its last checkpoint on the nodes that are left.",
    )


def _no_core(worker: RayWorker) -> ClusterStartError:
    return ClusterStartError(
        "Each node of Ray must have tfdistr.",
        received=f"none on {worker.host} (worker {worker.index})",
        fix="Install it there as here, or name it in runtime_env={'pip': [...]}.",
    )

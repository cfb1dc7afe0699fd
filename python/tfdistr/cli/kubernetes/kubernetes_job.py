"""Running a script as pods by ``kubectl``: start, follow, judge, delete."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tfdistr.cli.kubernetes.kubectl import Kubectl
from tfdistr.cli.kubernetes.manifests import labels
from tfdistr.cli.kubernetes.pod import PEER_STATUS
from tfdistr.cli.kubernetes.pod_options import FollowedPods
from tfdistr.cli.script_options import log_folder
from tfdistr.errors import STOPPED_STATUS, ClusterStartError, JobStoppedError, WorkerFailedError
from tfdistr.supervision.events import HostClocks
from tfdistr.supervision.failures import Failure, root_cause, worker_failed_error

OnEvent = Callable[[dict[str, Any]], object]

_PAUSE = 1.0
_SILENCE = 30.0  # seconds without an answer of Kubernetes that are worth a warning
_INDEX = "batch.kubernetes.io/job-completion-index"
#: Why a container waits for what will not come.
_HOPELESS = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
#: Why a Job fails when a worker has failed; else it is the Job itself, such as its deadline.
_BY_A_WORKER = ("BackoffLimitExceeded", "PodFailurePolicy", "FailedIndexes")
_FROM_128 = 128  # a shell, and Kubernetes, add a signal to this number


class _Terminated(BaseException):
    """SIGTERM has come."""


def run_pods(pods: FollowedPods, on_event: OnEvent) -> None:
    """Run a script as pods, follow them until the Job has ended, and delete all objects that were made.

    Args:
        on_event: Called with each line of a worker ("log"), each change of its state ("state"), each restart,
            and warnings.
    """
    kubectl = Kubectl(pods.namespace)
    temporary = pods.log_dir is None  # it stays if a worker fails
    folder = Path(tempfile.mkdtemp(prefix="tfdistr-")) if pods.log_dir is None else log_folder(pods.log_dir)
    made: list[str] = []

    def terminate(*_: Any) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        kubectl.create(pods, made)
        _Following(pods, kubectl, on_event, folder).until_the_end()
    except WorkerFailedError:
        temporary = False  # the error names a log
        raise
    except _Terminated:
        raise JobStoppedError(
            "The Job was told to end (SIGTERM), and its pods were deleted.",
            fix="Run it again: a distributed_fit() with resume=True continues at its checkpoint.",
        ) from None
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # nothing keeps this process from deleting
        obstacle = kubectl.delete(made)
        signal.signal(signal.SIGTERM, before)
        if obstacle is not None:
            look = f"kubectl get {' '.join(made)}"
            words = f"The objects of the Job may still be there: {obstacle}. See: {look}"
            on_event({"event": "warning", "message": words})
        if temporary:
            shutil.rmtree(folder, ignore_errors=True)


class _Following:
    """The pods of one Job, as they are followed."""

    def __init__(self, pods: FollowedPods, kubectl: Kubectl, on_event: OnEvent, folder: Path) -> None:
        self._pods, self._kubectl, self._on_event, self._folder = pods, kubectl, on_event, folder
        self._begin = self._answered = time.monotonic()
        self._states: dict[int, str] = {}
        self._streams: dict[str, tuple[subprocess.Popen[str], threading.Thread]] = {}
        self._failures: dict[str, tuple[Failure, str]] = {}  # by pod, with the node
        self._clocks = HostClocks()  # of the nodes
        self._printing = threading.Lock()

    def until_the_end(self) -> None:
        """Follow the pods until the Job has ended. Raise an error if it has failed."""
        selector = ",".join(f"{name}={value}" for name, value in labels(self._pods).items())
        try:
            while True:
                job = self._kubectl.get("job", self._pods.name)
                found = self._kubectl.get("pods", "--selector", selector)
                self._note_answer(job is not None)
                for pod in self._in_order((found or {}).get("items", [])):
                    self._look_at(pod)
                conditions = (job or {}).get("status", {}).get("conditions", [])
                ended = {c["type"]: c for c in conditions if c.get("status") == "True"}
                if "Complete" in ended or "Failed" in ended:
                    break
                self._check_started()
                time.sleep(_PAUSE)
            for _, thread in self._streams.values():
                thread.join(10)
            if "Failed" in ended:
                raise self._error(ended["Failed"])
        finally:
            for process, _ in self._streams.values():
                process.kill()
                process.wait()
            for _, thread in self._streams.values():
                thread.join(10)

    def _note_answer(self, answered: bool) -> None:
        now = time.monotonic()
        if answered:
            self._answered = now
        elif now - self._answered > _SILENCE:
            self._answered = now
            words = f"Kubernetes has not answered for {_SILENCE:.0f} s. The pods may run on."
            self._tell({"event": "warning", "message": words})

    def _check_started(self) -> None:
        timeout = self._pods.start_timeout
        if timeout is None or time.monotonic() - self._begin < timeout:
            return
        states = {index: self._states.get(index, "no pod") for index in range(self._pods.workers)}
        late = {index: state for index, state in states.items() if state.startswith(("no pod", "Pending"))}
        if late and not self._failures:
            raise ClusterStartError(
                f"Each pod must run within {timeout:g} s.",
                received="; ".join(f"worker {index}: {state}" for index, state in late.items()),
                fix="Ask for less for each pod, or pass a larger `start_timeout`.",
            )

    def _in_order(self, pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The pods in the order of their ends, although the clocks of nodes differ; then the others."""
        now = time.monotonic()
        ends: list[tuple[str, float] | None] = []
        for pod in pods:
            node, state = str(pod.get("spec", {}).get("nodeName")), _state(pod)
            ended = _end(state.get("terminated"))
            for reading in (_seconds(state.get("running", {}).get("startedAt")), ended):
                if reading is not None:
                    self._clocks.observe(node, reading, now)
            ends.append(None if ended is None else (node, ended))
        here = [math.inf if end is None else self._clocks.here(*end) for end in ends]
        return [pod for _, pod in sorted(zip(here, pods, strict=True), key=lambda pair: pair[0])]

    def _look_at(self, pod: dict[str, Any]) -> None:
        name, status = pod["metadata"]["name"], pod.get("status", {})
        index = int(pod["metadata"].get("annotations", {}).get(_INDEX, 0))
        node = pod.get("spec", {}).get("nodeName", "")
        state = _state(pod)
        if ("running" in state or "terminated" in state) and name not in self._streams:
            self._follow(name, index)
        if "terminated" in state and name not in self._failures:
            self._note_end(name, index, node, state["terminated"])
        waiting = state.get("waiting", {})
        if waiting.get("reason") in _HOPELESS:
            raise ClusterStartError(
                "Each pod must be able to start its container.",
                received=f"worker {index} waits: {waiting['reason']}: {waiting.get('message', '')}".strip(
                    ": "
                ),
                fix="Correct what Kubernetes names, for example with image=... of a registry that the nodes "
                "reach.",
            )
        self._tell_state(index, _words(status, waiting) + (f" on {node}" if node else ""))

    def _tell_state(self, index: int, words: str) -> None:
        if self._states.get(index) != words:
            self._states[index] = words
            self._tell({"event": "state", "worker": index, "state": words})

    def _tell(self, event: dict[str, Any]) -> None:
        with self._printing:
            self._on_event(event)

    def _follow(self, name: str, index: int) -> None:
        process = self._kubectl.logs(name)

        def read() -> None:
            assert process.stdout is not None
            with self._log(index).open("a", encoding="utf-8") as log, process.stdout:
                for line in process.stdout:
                    log.write(line)
                    log.flush()
                    self._tell({"event": "log", "worker": index, "line": line.rstrip("\n")})

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        self._streams[name] = process, thread

    def _log(self, index: int) -> Path:
        return self._folder / f"worker-{index}.log"

    def _note_end(self, name: str, index: int, node: str, ended: dict[str, Any]) -> None:
        code = int(ended.get("exitCode", 1))
        if code == 0:
            return
        failure = _failure(index, len(self._failures), code, ended)
        self._failures[name] = failure, node
        if code not in (STOPPED_STATUS, PEER_STATUS) and len(self._failures) <= self._pods.max_restarts:
            reason = f"Worker {index} of {self._pods.workers} ended with exit status {code}"
            self._tell({"event": "restart", "worker": index, "time": time.time(), "reason": reason})

    def _error(self, condition: dict[str, Any]) -> Exception:
        counted = [(failure, node) for failure, node in self._failures.values()
                   if failure.exit_code not in (STOPPED_STATUS, PEER_STATUS)]  # fmt: skip
        if not counted or condition.get("reason") not in _BY_A_WORKER:
            return ClusterStartError(
                "The Job has failed.",
                received=f"{condition.get('reason')}: {condition.get('message')}",
                fix=f"See: kubectl describe job {self._pods.name}",
            )
        # The failures after which the workers were started again are over.
        last = counted[self._pods.max_restarts :] or counted[-1:]
        failure = root_cause(failure for failure, _ in last)
        node = next(node for each, node in last if each is failure)
        process: Any = SimpleNamespace(
            host=node or "an unknown node", pid=None, log=self._log(failure.worker)
        )
        title = f"Worker {failure.worker} of {self._pods.workers}"
        return worker_failed_error(failure, process, title=title, done=False)


def _failure(index: int, order: int, code: int, ended: dict[str, Any]) -> Failure:
    """The failure that a container reports in its message, or that its exit status says."""
    said = _said(ended)
    if "error_type" in said:
        return Failure.reported({**said, "worker": index}, order, code)
    return Failure.exited(index, order, _FROM_128 - code if code > _FROM_128 else code)


def _state(pod: dict[str, Any]) -> dict[str, Any]:
    containers: list[dict[str, Any]] = pod.get("status", {}).get("containerStatuses") or [{}]
    return dict(containers[0].get("state", {}))


def _said(ended: dict[str, Any]) -> dict[str, Any]:
    try:
        said = json.loads(ended.get("message") or "{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _end(ended: dict[str, Any] | None) -> float | None:
    """The time at which a container failed or ended, by the clock of its node; None if it is not known."""
    when = _said(ended or {}).get("time")
    return float(when) if isinstance(when, int | float) else _seconds((ended or {}).get("finishedAt"))


def _seconds(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None


def _words(status: dict[str, Any], waiting: dict[str, Any]) -> str:
    """The state of a pod, with the reason for which it waits."""
    words = str(status.get("phase", "Pending"))
    if words != "Pending":
        return words
    scheduled = [c for c in status.get("conditions", []) if c.get("type") == "PodScheduled"]
    obstacles = [c.get("message") or c.get("reason") for c in scheduled if c.get("status") == "False"]
    reason = waiting.get("reason") or next(iter(filter(None, obstacles)), None)
    return f"{words} ({reason})" if reason else words

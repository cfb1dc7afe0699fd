"""The supervisor: it runs the workers of a job, and ends all of them when one fails."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tfdistr.clusters.cluster import Cluster, ProcessRole
from tfdistr.clusters.guard import HEARTBEAT
from tfdistr.clusters.worker_process import GRACE, Worker, log_path, scratch_path, stop
from tfdistr.errors import (
    STOPPED_STATUS,
    CheckpointError,
    ClusterStartError,
    JobStoppedError,
    TfdistrError,
    WorkerFailedError,
    how_to_resume,
)
from tfdistr.schemas.events import Event, event_now
from tfdistr.supervision.events import EventReader, events_path
from tfdistr.supervision.failures import Failure, FailureKind, root_cause, what_ended, worker_failed_error
from tfdistr.utils.disk import writing
from tfdistr.utils.log_tail import Tail, is_about_cuda

POLL = 0.05
"""The poll interval for few workers, in seconds."""
FEW = 64
"""With more workers the poll interval grows, so that the launcher leaves them its core."""
PATIENCE = 3.0
"""Seconds to wait for the root cause when a failure may have followed from another failure.

On a machine with much load a worker needs a second or two to write what has failed.
"""
EXIT_TIMEOUT = 120.0
"""Seconds that the processes may take to exit once every worker is done; then they are killed."""
GRACE_OF_PEERS = 1.0
"""Seconds that the others have to exit by themselves after a failure: most wait for the lost worker."""
STOP_TIMEOUT = 30.0
"""Seconds that a worker may be stopped (SIGSTOP, a debugger) while others wait for it."""
REPLACEMENTS = 10
"""The limit for replacements of one worker: a worker that dies repeatedly makes no progress."""
PORT_RETRIES = 5
"""The limit for restarts of all workers because another process has taken the port of one."""
SERVER_GRACE = 15.0
"""Seconds that servers may take to exit once their chief has exited well; then they are killed."""

_TO_START = 0.5  # seconds that the system may need from the first start to the last

OnEvent = Callable[[Event], object]


@dataclass(frozen=True)
class WorkerStatus:
    """The status of a worker at the end of a job.

    Args:
        index: Its index, from 0.
        host: The machine on which it ran.
        pid: Its process id there; 0 if it had not started yet.
        status: "done", "failed", or "stopped" because another worker failed.
        seconds: How long its process ran.
        log: Path of the file with its output.
        exit_code: Its exit status, or minus the signal that killed it.
        times: The seconds of each part of its training, if it has trained to the end.
    """

    index: int
    host: str
    pid: int
    status: str
    seconds: float
    log: str
    exit_code: int | None
    times: dict[str, float] | None = None


def run_workers(
    cluster: Cluster,
    command: Sequence[str],
    run_dir: str | os.PathLike[str],
    on_event: OnEvent | None = None,
    *,
    heartbeat_timeout: float | None = None,
) -> list[WorkerStatus]:
    """Run one job: start the workers, wait for all of them, leave none behind; return their statuses."""
    notify: OnEvent = on_event or (lambda event: None)
    attempt = 1
    while True:
        limit = STOP_TIMEOUT if heartbeat_timeout is None else heartbeat_timeout
        generation = _Attempt(cluster, command, Path(run_dir), notify, limit)
        root = generation.run()
        if root is None and generation.stopped is not None:
            raise generation.stopped
        if root is None:
            return generation.statuses()
        if not root.port_in_use or attempt > PORT_RETRIES:
            raise generation.error(root, attempt)
        for index in range(cluster.workers):
            log = log_path(run_dir, index)
            log.replace(f"{log}.{attempt}")
        notify(event_now("restart", root.worker, reason="port in use"))
        attempt += 1


def poll_interval(workers: int) -> float:
    """Return the poll interval for so many workers, in seconds."""
    return POLL * max(1.0, workers / FEW)


@dataclass
class _Progress:
    """The progress of a worker, or of another process of the cluster.

    Attributes:
        was_ready: Whether a process of this worker was ready, perhaps before it was replaced.
        replaced: How often its process was replaced.
        stopped_since: When it was first seen stopped (SIGSTOP); None if it is running.
    """

    role: ProcessRole
    ready: bool = False
    was_ready: bool = False
    done: bool = False
    times: dict[str, float] | None = None
    replaced: int = 0
    stopped_since: float | None = None


class _RunDir:
    """The run directory, with the events of the workers."""

    def __init__(self, path: Path, workers: int) -> None:
        for index in range(workers):
            events_path(path, index).unlink(missing_ok=True)
        self.path, self.events = path, EventReader(path, workers)
        self._found: os.stat_result | None = None

    def check(self) -> None:
        """Raise an error if it has gone: nothing that the workers report arrives any more."""
        there: os.stat_result | None = None
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            there = os.stat(self.path)
        self._found = self._found or there
        if there is None or self._found is None:
            what = "it is gone"
        elif not os.path.samestat(there, self._found):
            what = "another folder is in its place"
        elif self.events.lost:
            what = "files of the workers in it are gone"
        else:
            return
        raise CheckpointError(
            "The run directory was removed or renamed while the job ran.",
            received=f"{self.path}: {what}",
            fix="Run the job again, and leave its run directory alone until it has ended. Pass a `run_dir` "
            "that nothing cleans up.",
        )


class _Attempt:
    """Workers that were started together, once."""

    def __init__(
        self, cluster: Cluster, command: Sequence[str], run_dir: Path, notify: OnEvent, stop_timeout: float
    ) -> None:
        self._cluster, self._notify, self._stop_timeout = cluster, notify, stop_timeout
        self._run_dir = _RunDir(run_dir, cluster.workers)
        self._start = partial(cluster.start, command, run_dir)
        indices = range(cluster.workers)
        self._outputs = {i: Tail(log_path(run_dir, i)) for i in indices if cluster.follow}
        self._progress = [_Progress(role) for role in cluster.roles]
        #: The error if the workers were preempted, and have saved a checkpoint.
        self.stopped: JobStoppedError | None = None
        self._failures: dict[int, Failure] = {}
        self._processes: list[Worker] = []
        self._started = self._changed = time.monotonic()

    def run(self) -> Failure | None:
        """Start the workers; watch until all have exited well or one has failed; return the root cause."""
        try:
            with writing(
                log_path(self._run_dir.path, 0).parent, "The logs of the workers", only_refusals=True
            ):
                self._processes = list(self._start())
            while self._watch():
                time.sleep(poll_interval(len(self._processes)))
        finally:
            try:
                stop(self._processes, GRACE_OF_PEERS if self._failures else GRACE)
            finally:  # workers that were killed have left it
                for index in range(len(self._progress)):
                    shutil.rmtree(scratch_path(self._run_dir.path, index), ignore_errors=True)
        if self._failures:
            self._run_dir.check()
        self._follow(final=True)
        return root_cause(self._failures.values()) if self._failures else None

    def _watch(self) -> bool:
        """Check all workers once. Return whether to continue."""
        looked = time.monotonic()
        # First the processes: the output of an exited process is then complete.
        running = [process for process in self._processes if process.poll() is None]
        for event in self._run_dir.events.poll():
            self._take(event)
        if time.monotonic() - looked > HEARTBEAT:
            return True  # a function of the session has run: heartbeats have come meanwhile
        self._run_dir.check()
        self._follow()
        self._show_news()
        for process in self._processes:
            code = process.exit_code
            well = STOPPED_STATUS if self.stopped else 0
            if code is not None and not (code == well and self._progress[process.index].done):
                self._record_exit(process, code)
        self._check_stopped(running)
        waited = time.monotonic() - self._changed
        if self._failures:
            return self._await_root_cause(waited)
        if self._leader_left() and waited > SERVER_GRACE:
            return False
        if all(worker.done for worker in self._progress):
            return bool(running) and waited < EXIT_TIMEOUT
        if time.monotonic() - self._started > self._cluster.start_timeout:
            self._check_ready()
        return True

    def _take(self, event: Event) -> None:
        worker, kind = event["worker"], event["event"]
        assert worker is not None  # the reader knows its worker
        progress = self._progress[worker]
        if kind == "failed" and not self._is_dismissed(worker):
            self._fail(Failure.reported(event, self._order, self._processes[worker].exit_code))
        elif kind in ("done", "stopped"):
            if kind == "stopped":
                self.stopped = JobStoppedError(event["message"], fix=how_to_resume(self._run_dir.path))
            progress.done = True
            progress.times = event.get("times", progress.times)
            self._changed = self._changed if self._failures else time.monotonic()
        if kind != "started":
            progress.ready = progress.was_ready = True
        self._notify(event)

    def _record_exit(self, process: Worker, code: int) -> None:
        """Record a process that exited before it was done, or with an unexpected status."""
        index, progress = process.index, self._progress[process.index]
        if self._is_dismissed(index):
            return
        if (
            progress.role.replaceable
            and progress.was_ready
            and not self._failures
            and progress.replaced < REPLACEMENTS
        ):
            self._replace(process, code)
        else:
            self._fail(Failure.exited(index, self._order, code))

    def _replace(self, process: Worker, code: int) -> None:
        index, progress = process.index, self._progress[process.index]
        progress.replaced += 1
        self._follow(final=True)
        process.log.replace(f"{process.log}.{progress.replaced}")
        if index in self._outputs:
            self._outputs[index] = Tail(process.log)
        progress.ready = False
        reason = f"{progress.role.title} {what_ended(code)}".rstrip(".")
        self._notify(event_now("replaced", index, reason=reason))
        self._notify(event_now("warning", index, message=f"{reason}. Another process takes its place."))
        self._processes[index] = self._cluster.start_again(index, self._run_dir.path)

    def _is_dismissed(self, index: int) -> bool:
        """Return whether a server has no work left, so that its exit status does not matter."""
        leaders = {leader for leader, each in enumerate(self._progress) if each.role.leads}
        # The launcher may see the end of a leader after the end of a server that has reacted to it.
        done = [self._progress[each].done for each in (index, *leaders)]
        return bool(leaders) and index not in leaders and any(done)

    def _leader_left(self) -> bool:
        well = STOPPED_STATUS if self.stopped else 0
        return any(
            each.role.leads and each.done and process.exit_code == well
            for each, process in zip(self._progress, self._processes, strict=False)
        )

    @property
    def _order(self) -> int:
        return len(self._failures)

    def _fail(self, failure: Failure) -> None:
        if not self._failures:
            self._changed = time.monotonic()
        known = self._failures.get(failure.worker, failure)
        if known.cause is FailureKind.EXIT and failure.event:
            # A worker's report has more details than its exit status, which may arrive first.
            known, failure = replace(failure, order=known.order), known
        self._failures[failure.worker] = replace(known, exit_code=failure.exit_code)

    def _await_root_cause(self, waited: float) -> bool:
        root = root_cause(self._failures.values())
        if root.cause is FailureKind.PEER and (lost := self._longest_silent()) is not None:
            # Its own report, if there is one, only says that it has lost the others.
            self._failures[lost.index] = Failure.silent(lost.index, self._order, lost.silent_for)
            return False
        found = root.cause is FailureKind.OWN or len(self._failures) == len(self._processes)
        # The worker may write to its log until it exits.
        if found and (root.exit_code is not None or root.silence is not None):
            return False
        if waited < PATIENCE:
            return True
        for process in self._processes:
            if root.cause is FailureKind.PEER and process.is_stopped:
                self._fail(Failure.paused(process.index, self._order))
        return False

    def _longest_silent(self) -> Worker | None:
        process = max(self._processes, key=lambda process: process.silent_for)
        return process if process.silent_for > 2 * HEARTBEAT else None

    def _check_stopped(self, running: Sequence[Worker]) -> None:
        """Record a stopped or silent worker: the others may wait forever, as MPI does not notify them."""
        for process in running:
            if process.silent_for > max(self._stop_timeout, 2 * HEARTBEAT):
                self._fail(Failure.silent(process.index, self._order, process.silent_for))
            progress, now = self._progress[process.index], time.monotonic()
            if not process.is_stopped or len(self._processes) == 1:
                progress.stopped_since = None
            elif progress.stopped_since is None:
                progress.stopped_since = now
            elif now - progress.stopped_since > self._stop_timeout:
                self._fail(Failure.paused(process.index, self._order))

    def _check_ready(self) -> None:
        limit = self._cluster.start_timeout
        waited_for = [p for p in self._processes if not self._progress[p.index].ready]
        # Workers that the system started a moment later are late as well.
        late = [p for p in waited_for if p.seconds > limit - _TO_START]
        if any(p.seconds > limit for p in late) and not self._leader_left():
            error = ClusterStartError(
                f"Not all workers were ready within {limit:g} s of their start.",
                received=f"{len(late)} of {len(self._processes)} workers were not: "
                + "; ".join(f"{self._progress[p.index].role.task} (log: {p.log})" for p in late),
                fix="See the log for what it waits for, or pass a larger `start_timeout`.",
            )
            raise _without(error, late, self._processes)

    def _show_news(self) -> None:
        """Show messages of the workers' launcher, such as the state of its queue."""
        for process in self._processes:
            for line in process.news():
                self._notify(event_now("log", line=line))

    def _follow(self, final: bool = False) -> None:
        for worker, output in self._outputs.items():
            for line in output.lines(final=final):
                if not is_about_cuda(line):
                    self._notify(event_now("log", worker, line=line))

    def statuses(self) -> list[WorkerStatus]:
        return [
            WorkerStatus(
                index=process.index,
                host=process.host,
                pid=process.pid,
                status=self._status(process.index),
                seconds=process.seconds,
                log=str(process.log),
                exit_code=process.exit_code,
                times=self._progress[process.index].times,
            )
            for process in self._processes
        ]

    def _status(self, index: int) -> str:
        if index in self._failures:
            return "failed"
        return "done" if self._progress[index].done or self._leader_left() else "stopped"

    def error(self, root: Failure, attempts: int) -> Exception:
        process = self._processes[root.worker]
        if root.cause is not FailureKind.OWN and (launch_error := process.launch_error()):
            if isinstance(launch_error, WorkerFailedError):
                launch_error.workers = self.statuses()
            return _without(launch_error, [p for p in self._processes if not p.pid], self._processes)
        error = worker_failed_error(
            root,
            process,
            title=self._progress[root.worker].role.title,
            done=self._progress[root.worker].done,
            attempts=attempts,
        )
        error.workers = self.statuses()
        return error


def _without(error: TfdistrError, absent: Sequence[Worker], workers: Sequence[Worker]) -> TfdistrError:
    """Return the error, which names the first absent worker if only some of the workers are absent."""
    known = getattr(error, "host", None) is not None
    if isinstance(error, ClusterStartError) and not known and 0 < len(absent) < len(workers):
        error.worker, error.host = absent[0].index, absent[0].host
    return error

"""Workers on other hosts, as their launcher knows them: their messages, heartbeats, output and ends."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfdistr.clusters.hosts import not_started, unseen_run_dir
from tfdistr.clusters.rank_guard import MARK
from tfdistr.clusters.worker_process import log_path, server_lost_error
from tfdistr.errors import ClusterStartError, TfdistrError


class RemoteWorker:
    """A worker on another host, with the interface of `Worker`. A guard on its host sends its messages.

    Args:
        job: What has started it.
        index: The index of the worker.
        run_dir: The directory of the run.
        host: Its host, or a name for the host until a message names it.

    Attributes:
        heard: The time of its last message.
        reported: The exit status that its guard has reported.
    """

    def __init__(self, job: RemoteJob, index: int, run_dir: Path, host: str) -> None:
        self.index, self.host, self.log = index, host, log_path(run_dir, index)
        self.pid = 0  # until it has started
        self.exit_code: int | None = None
        self.is_stopped = False
        self.heard: float | None = None
        self.reported: int | None = None
        self._job = job
        self._started = None if job.waits else time.monotonic()
        self._ended = 0.0

    @property
    def seconds(self) -> float:
        """Seconds from its start to its end, or until now; 0 while it waits for a host."""
        if self._started is None:
            return 0.0
        return (time.monotonic() if self.exit_code is None else self._ended) - self._started

    @property
    def answered(self) -> bool:
        """Whether its guard has sent a message, or has ended."""
        return self.heard is not None or self.exit_code is not None

    @property
    def silent_for(self) -> float:
        """Seconds since its last heartbeat, beyond those that heartbeats may come late; 0 if it has ended."""
        if self.heard is None or self.reported is not None or self.exit_code is not None:
            return 0.0
        return max(0.0, time.monotonic() - self.heard - self._job.late)

    def take(self, message: Mapping[str, Any]) -> None:
        """Process a message of its guard. An empty message is a heartbeat."""
        self.heard = time.monotonic()
        self.host = str(message.get("host", self.host))
        self.pid = message.get("pid", self.pid)
        self.is_stopped = message.get("halted", self.is_stopped)
        self.reported = 1 if "failed" in message else message.get("exit_code", self.reported)
        if message.get("missing"):
            self._job.fail(unseen_run_dir(message["missing"], self.host, self.index), self)
        elif "failed" in message:
            self._job.fail(not_started(self.index, self.host, message["failed"]), self)
        elif message.get("server_lost"):
            self._job.fail(server_lost_error(self))
        if self.reported is not None:
            self._job.end_reported(self)

    def begin(self, host: str | None = None) -> None:
        """Count its seconds from now, on this host if it is known: before, it waited for a host."""
        self.host, self._started = host or self.host, time.monotonic()

    def end(self, exit_code: int) -> None:
        """Note that it has ended."""
        if self.exit_code is None:
            self.exit_code, self._ended = exit_code, time.monotonic()

    def poll(self) -> int | None:
        """Check whether it has ended."""
        self._job.look()
        return self.exit_code

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to it and to the processes that it started."""
        self._job.send(self, number)

    def warn(self) -> None:
        """Send SIGTERM, as a scheduler does some time before it ends a process."""
        self._job.warn(self)

    def reap(self) -> None:
        """Wait until it has ended."""
        self._job.reap()

    def launch_error(self) -> TfdistrError | None:
        """The error if it could not be started, or was lost."""
        return self._job.failure

    def news(self) -> list[str]:
        """The news of its job, which no other worker tells again."""
        found, self._job.told = self._job.told, []
        return found


class RemoteJob:
    """The workers that one program starts: the base of `Ssh`, `Srun`, `Batch` and `RayJob`.

    Args:
        run_dir: The directory of the run.
        indices: The indices of the workers.
        host: The host of the workers, or a name for it until they name theirs.

    Attributes:
        workers: The workers.
        failure: The first error of the launcher, if there is one.
        told: What the user should know, and has not been told.
        late: Seconds that heartbeats may come late.
        waits: Whether the workers wait for a host at first.
    """

    late = 0.0
    waits = False

    def __init__(self, run_dir: Path, indices: Iterable[int], host: str) -> None:
        self.failure: TfdistrError | None = None
        self.told: list[str] = []
        self.workers = [RemoteWorker(self, index, run_dir, host) for index in indices]
        self.workers[0].log.parent.mkdir(parents=True, exist_ok=True)
        for worker in self.workers:  # the workers of a session that was killed may still write into it
            worker.log.unlink(missing_ok=True)

    @property
    def running(self) -> list[RemoteWorker]:
        """The workers that have not ended."""
        return [worker for worker in self.workers if worker.exit_code is None]

    def look(self) -> None:
        """Read the messages since the last call."""
        raise NotImplementedError

    def send(self, worker: RemoteWorker, number: signal.Signals) -> None:
        """Send a signal to a worker and to the processes that it started."""
        raise NotImplementedError

    def warn(self, worker: RemoteWorker) -> None:
        """Send SIGTERM to a worker that may save before it ends."""
        self.send(worker, signal.SIGTERM)

    def reap(self) -> None:
        """Wait until nothing of the workers is left."""
        raise NotImplementedError

    def fail(self, error: TfdistrError, worker: RemoteWorker | None = None) -> None:
        """Note the first error, and the worker that could not be started."""
        if worker is not None and isinstance(error, ClusterStartError):
            error.worker, error.host = worker.index, worker.host
        self.failure = self.failure or error

    def end_reported(self, worker: RemoteWorker) -> None:
        """Note the end of a worker whose guard has reported it."""
        worker.end(worker.reported or 0)

    def end_all(self) -> None:
        """Note that no worker is left."""
        for worker in self.running:
            worker.end(1)


def message_in(line: str, mark: str = MARK) -> dict[str, Any]:
    """The message in a line; empty if there is none: the shell of a user prints lines, too."""
    with contextlib.suppress(ValueError, TypeError):
        return dict(json.loads(line.removeprefix(mark))) if line.startswith(mark) else {}
    return {}


def quoted(lines: Sequence[str]) -> str:
    """The last lines of a program for an error."""
    return "\n".join(f"  {line}" for line in lines) or "  (nothing)"

"""Workers on other hosts, from the view of their launcher: messages, heartbeats and exit statuses."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tfdistr.clusters.guard import MARK
from tfdistr.clusters.worker_process import Worker, server_lost_error
from tfdistr.errors import ClusterStartError, TfdistrError
from tfdistr.utils.log_tail import LineReader

#: A message of a guard, or of the driver between a launcher and Ray.
Message = Mapping[str, Any]
_CHUNK = 1 << 16
_SIZE = 1 << 20  # bytes that can wait while this process is paused


class ProgramOutput:
    """The output of a program, by a pipe: through a file, messages would be lost on a full disk."""

    def __init__(self, pipe: IO[bytes] | None, log: Path | None = None) -> None:
        assert pipe is not None
        self._pipe, self._log, self._lines = pipe, log, LineReader()
        os.set_blocking(pipe.fileno(), False)
        if log:
            with contextlib.suppress(AttributeError, OSError):  # macOS; the limit of this user
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _SIZE)

    def lines(self, *, final: bool = False) -> list[str]:
        """Read the lines that were completed since the last call; see `Tail.lines`."""
        received = b""
        with contextlib.suppress(BlockingIOError):
            while not self._pipe.closed:
                chunk = os.read(self._pipe.fileno(), _CHUNK)
                received += chunk
                if not chunk:
                    self._pipe.close()
        if received and self._log:
            with contextlib.suppress(OSError), self._log.open("ab") as log:  # it is only for the user
                log.write(received)
        return self._lines.take(received, final=final)

    def close(self) -> None:
        """Stop reading: a process that the program has left may keep the pipe open."""
        self._pipe.close()


class RemoteWorker(Worker):
    """A worker on another host. Its guard reports to the launcher."""

    def __init__(self, job: RemoteJob, index: int, run_dir: Path, host: str) -> None:
        super().__init__(index, host, run_dir)
        self.heard: float | None = None
        self.reported: int | None = None
        self._job = job
        self._stopped = False
        if job.waits:
            self._started = None

    @property
    def is_stopped(self) -> bool:
        """Return whether its guard has reported that it is stopped (SIGSTOP)."""
        return self._stopped

    @property
    def answered(self) -> bool:
        """Return whether its guard has sent a message, or has exited."""
        return self.heard is not None or self.exit_code is not None

    @property
    def silent_for(self) -> float:
        """Seconds since its last heartbeat, minus the allowed delay; 0 once it has exited."""
        if self.heard is None or self.reported is not None or self.exit_code is not None:
            return 0.0
        return max(0.0, time.monotonic() - self.heard - self._job.late)

    def take(self, message: Message) -> None:
        """Process a message from its guard. An empty message is a heartbeat."""
        self.heard = time.monotonic()
        self.host = str(message.get("host", self.host))
        self.pid = message.get("pid", self.pid)
        self._stopped = message.get("stopped", self._stopped)
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
        """Count its seconds from now, because it no longer waits for a host."""
        self.host, self._started = host or self.host, time.monotonic()

    def end(self, exit_code: int) -> None:
        """Record its exit status, once."""
        if self.exit_code is None:
            self.exit_code, self._ended = exit_code, time.monotonic()

    def poll(self) -> int | None:
        """Check whether it has exited."""
        self._job.look()
        return self.exit_code

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to it and to the processes that it started."""
        self._job.send(self, number)

    def terminate(self) -> None:
        """Send SIGTERM, as a scheduler does some time before it kills a process."""
        self._job.warn(self)

    def reap(self) -> None:
        """Wait until it has exited."""
        self._job.reap()

    def launch_error(self) -> TfdistrError | None:
        """Return the error if it could not be started, or was lost."""
        return self._job.failure

    def news(self) -> list[str]:
        """Return the notices of its job; no other worker returns them again."""
        found, self._job.notices = self._job.notices, []
        return found


class RemoteJob(ABC):
    """Workers that one program starts on other hosts: the base of `Ssh`, `Srun`, `BatchJob` and `RayJob`.

    Args:
        host: The host of the workers, or a placeholder until messages name their hosts.

    Attributes:
        failure: The first error of the launcher, or None.
        notices: Messages for the user, until `news` of a worker returns them.
        late: Seconds by which heartbeats may be late.
        waits: Whether the workers first wait for a host.
    """

    late = 0.0
    waits = False

    def __init__(self, run_dir: Path, indices: Iterable[int], host: str) -> None:
        self.failure: TfdistrError | None = None
        self.notices: list[str] = []
        self.workers = [RemoteWorker(self, index, run_dir, host) for index in indices]
        self.workers[0].log.parent.mkdir(parents=True, exist_ok=True)
        for worker in self.workers:  # workers of a killed session may still write into it
            worker.log.unlink(missing_ok=True)

    @property
    def running(self) -> list[RemoteWorker]:
        """The workers that have not exited."""
        return [worker for worker in self.workers if worker.exit_code is None]

    @abstractmethod
    def look(self) -> None:
        """Process the messages since the last call."""

    @abstractmethod
    def send(self, worker: RemoteWorker, number: signal.Signals) -> None:
        """Send a signal to a worker and to the processes that it started."""

    def warn(self, worker: RemoteWorker) -> None:
        """Send SIGTERM to a worker, which may save before it exits."""
        self.send(worker, signal.SIGTERM)

    @abstractmethod
    def reap(self) -> None:
        """Wait until all workers have exited."""

    def fail(self, error: TfdistrError, worker: RemoteWorker | None = None) -> None:
        """Record the first error, and the worker that could not be started."""
        if worker is not None and isinstance(error, ClusterStartError):
            error.worker, error.host = worker.index, worker.host
        self.failure = self.failure or error

    def end_reported(self, worker: RemoteWorker) -> None:
        """Record the exit status that the guard of a worker has reported."""
        worker.end(worker.reported or 0)

    def end_all(self) -> None:
        """Record that all workers have exited."""
        for worker in self.running:
            worker.end(1)


def message_in(line: str) -> dict[str, Any]:
    """Return the message in a line; empty for other lines, such as those of a login shell."""
    with contextlib.suppress(ValueError, TypeError):
        return dict(json.loads(line.removeprefix(MARK))) if line.startswith(MARK) else {}
    return {}


def quoted_lines(lines: Sequence[str]) -> str:
    """Indent the last lines of a program for an error."""
    return "\n".join(f"  {line}" for line in lines) or "  (nothing)"


def unseen_run_dir(run_dir: str, host: str, worker: int) -> ClusterStartError:
    """Return the error if a host does not see the run directory."""
    return ClusterStartError(
        "The run directory is not visible on every host under the same path.",
        received=f"{run_dir}, which does not exist on {host} (worker {worker})",
        fix="Pass `run_dir`, a folder of a file system that the hosts share.",
    )


def not_started(worker: int, host: str, why: str) -> ClusterStartError:
    """Return the error if a host cannot start the program of a worker."""
    return ClusterStartError(
        f"Cannot start worker {worker} on {host}: {why}.",
        fix="Check that the program exists and is executable, and that the run directory is writable.",
    )

"""One worker process: its start, its end, and its end with its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfdistr.clusters.guard import end_group_with_this
from tfdistr.errors import TfdistrError, WorkerFailedError
from tfdistr.fork_server.client import Forked, fork
from tfdistr.utils.interrupts import uninterrupted
from tfdistr.utils.processes import process_state

if TYPE_CHECKING:
    from tfdistr.fork_server.servers import WarmStart

GRACE = 2.0
"""Seconds that a worker has to exit by itself after the request."""
_REAP = 30.0  # a killed process may still have to release a device


class Worker(ABC):
    """A started worker: the base of `WorkerProcess` and `RemoteWorker`.

    Attributes:
        pid: Its process id, which is the number of its process group, too; 0 until it has started.
        log: The file with its output.
        exit_code: None while it runs; then its exit status, or minus the signal that killed it.
    """

    def __init__(self, index: int, host: str, run_dir: str | os.PathLike[str]) -> None:
        self.index, self.host, self.pid = index, host, 0
        self.log = log_path(run_dir, index)
        self.exit_code: int | None = None
        self._started: float | None = time.monotonic()  # None while it waits for a host
        self._ended = 0.0

    @property
    def seconds(self) -> float:
        """Seconds from its start to its end, or until now; 0 while it waits for a host."""
        if self._started is None:
            return 0.0
        return (time.monotonic() if self.exit_code is None else self._ended) - self._started

    @property
    @abstractmethod
    def is_stopped(self) -> bool:
        """Return whether it is stopped (SIGSTOP)."""

    @property
    def silent_for(self) -> float:
        """Seconds since its last heartbeat; 0 if the system reports its end."""
        return 0.0

    @abstractmethod
    def poll(self) -> int | None:
        """Check whether it has exited."""

    @abstractmethod
    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to it and to the processes that it started."""

    def terminate(self) -> None:
        """Send SIGTERM, as a scheduler does some time before it kills a process."""
        self.signal_group(signal.SIGTERM)

    @abstractmethod
    def reap(self) -> None:
        """Wait until it has exited, after SIGKILL."""

    @abstractmethod
    def launch_error(self) -> TfdistrError | None:
        """Return the error if it could not be started, or was lost with its launcher."""

    def news(self) -> list[str]:
        """Return what its launcher has to tell the user since the last call."""
        return []


class WorkerProcess(Worker):
    """A started worker, in its own session and process group.

    Its standard output and its standard error go to one file, ``RUN_DIR/logs/worker-<index>.log``; its
    standard input is empty. Keyboard signals of the launcher's terminal do not reach it.

    Args:
        env: Its whole environment.
        warm: How a fork server starts it. If this is None, or the server refuses, it starts cold.
    """

    def __init__(
        self,
        index: int,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        run_dir: str | os.PathLike[str],
        files: Sequence[int] = (),
        warm: WarmStart | None = None,
    ) -> None:
        super().__init__(index, socket.gethostname(), run_dir)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.unlink(missing_ok=True)  # a worker of an earlier run may still write into its log
        self._end_watcher: Callable[[], None] = lambda: None
        with self.log.open("wb", buffering=0) as output:
            forked = warm and fork(warm.server, warm.argv, env, output)
            try:
                with uninterrupted():
                    self._process = forked or subprocess.Popen(
                        list(command),
                        env=dict(env),
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        pass_fds=files,
                    )
                    self.pid = self._process.pid
                    self._end_watcher = end_group_with_this(self.pid, env)
            except BaseException:
                self._end_at_once()
                raise
        if forked:
            self._started = time.monotonic()  # the server may have had to import TensorFlow first

    @property
    def is_stopped(self) -> bool:
        """Return whether it is stopped (SIGSTOP); only Linux reports this."""
        return process_state(self.pid) in ("T", "t")

    def poll(self) -> int | None:
        """Check whether it has exited; if so, kill the rest of its process group."""
        if self.exit_code is None:
            self.exit_code = self._process.poll()
            if self.exit_code is not None:
                if self.launch_error():
                    self.exit_code = 1  # the signal came from the lost fork server
                self._ended = time.monotonic()
                self.signal_group(signal.SIGKILL)
                self._end_watcher()
        return self.exit_code

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to it and to the processes that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left (macOS: only zombies)
            os.killpg(self.pid, number)

    def reap(self) -> None:
        """Wait until it has exited, after SIGKILL."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP)
        self.poll()

    def _end_at_once(self) -> None:
        """Kill the processes that have started."""
        if self.pid:
            self.signal_group(signal.SIGKILL)
            self._process.wait()
            self._end_watcher()

    def launch_error(self) -> WorkerFailedError | None:
        """Return the error if it was lost with its fork server."""
        lost = isinstance(self._process, Forked) and self._process.server_lost
        return server_lost_error(self) if lost else None


def server_lost_error(worker: Worker) -> WorkerFailedError:
    """Return the error for a worker whose fork server exited before it."""
    return lost_worker_error(
        worker,
        f"Worker {worker.index} on {worker.host} was lost with its fork server, which exited before the "
        "worker.",
        fix="Check whether the system, or somebody else, killed processes (dmesg: out of memory?). Pass "
        "warm=False to the cluster to start each worker by itself.",
    )


def lost_worker_error(worker: Worker, message: str, *, fix: str) -> WorkerFailedError:
    """Return the error for a worker that was lost; it names the log."""
    return WorkerFailedError(
        f"{message}\n\nIts log: {worker.log}",
        worker=worker.index,
        host=worker.host,
        pid=worker.pid or None,
        log=str(worker.log),
        fix=fix,
    )


def log_path(run_dir: str | os.PathLike[str], index: int) -> Path:
    """Return the path of the file with the output of worker `index`."""
    return Path(run_dir) / "logs" / f"worker-{index}.log"


def scratch_path(run_dir: str | os.PathLike[str], index: int) -> Path:
    """Return the folder for the temporary files of worker `index`."""
    return Path(run_dir) / "workers" / str(index) / "tmp"


def stop(processes: Sequence[Worker], grace: float = GRACE) -> None:
    """End process groups: SIGTERM to all, and SIGKILL to those left after ``grace`` seconds."""
    running = [process for process in processes if process.poll() is None]
    try:
        for process in running:
            process.signal_group(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and [process for process in running if process.poll() is None]:
            time.sleep(0.02)
    finally:  # also after a second Ctrl-C
        left = [process for process in running if process.exit_code is None]
        for process in left:
            process.signal_group(signal.SIGKILL)  # also kills stopped processes
        for process in processes:
            process.reap()

"""Workers on other hosts, each with its own ssh: starting it, reading what it says, and ending it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfdistr.clusters.hosts import not_started
from tfdistr.clusters.rank_guard import HEARTBEAT, MARK
from tfdistr.clusters.worker_process import log_path, server_lost_error
from tfdistr.errors import ClusterStartError, TfdistrError, WorkerFailedError
from tfdistr.utils.log_tail import last_lines

_REAP = 8.0  # seconds that ssh has to end after SIGKILL; the guard of the worker then ends by itself
# Seconds that ssh has to end after its worker: a process that the worker has left may hold its output.
_LINGER = 5.0
_CHUNK = 1 << 16
_LINES = 10  # of the output of ssh in an error


@dataclass(frozen=True)
class Remote:
    """What runs on a host.

    Args:
        host: The host.
        ssh: The command that starts the guard of the worker there.
        spec: What the guard is told; see ssh_guard.py. The values of environment variables may be secret:
            they are in no file and no command line.
    """

    host: str
    ssh: Sequence[str]
    spec: Mapping[str, Any]


class SshWorker:
    """A worker that ssh has started on a host, with the interface of `Worker`.

    Its output, and what ssh itself says, goes to its log. ssh's standard input is its lifeline: the worker
    ends when that ends, or is silent for too long.

    Args:
        index: The index of the worker.
        remote: What to run, and where.
        run_dir: The directory of the run.

    Raises:
        OSError: ssh cannot be started.
    """

    def __init__(self, index: int, remote: Remote, run_dir: str | os.PathLike[str]) -> None:
        self.index = index
        self.host = remote.host
        self.pid = 0  # until it has started
        self.log = log_path(run_dir, index)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.exit_code: int | None = None
        self.is_stopped = False
        self._started, self._ended = time.monotonic(), 0.0
        self._heard: float | None = None
        self._rest = b""
        self._code: int | None = None  # as the guard reports it, before ssh has ended
        self._killed: float | None = None
        self._failure: TfdistrError | None = None
        self._words: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        with self.log.open("wb", buffering=0) as output:
            self._ssh = subprocess.Popen(
                list(remote.ssh), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        assert self._ssh.stdout is not None
        os.set_blocking(self._ssh.stdout.fileno(), False)
        self._words.put(remote.spec)
        self._writer = threading.Thread(target=self._write, name=f"tfdistr-ssh-{index}", daemon=True)
        self._writer.start()

    def _write(self) -> None:
        """Pass words on to the guard, and heartbeats. A write may have to wait for the network."""
        assert self._ssh.stdin is not None
        with contextlib.suppress(OSError), self._ssh.stdin as guard:
            while True:
                line = "\n"
                with contextlib.suppress(queue.Empty):
                    word = self._words.get(timeout=HEARTBEAT)
                    if word is None:
                        return
                    line = f"{json.dumps(word)}\n"
                guard.write(line.encode())
                guard.flush()

    @property
    def seconds(self) -> float:
        """Seconds from its start to its end, or until now."""
        return (time.monotonic() if self.exit_code is None else self._ended) - self._started

    @property
    def answered(self) -> bool:
        """Whether its guard has said anything, or has ended."""
        return self._heard is not None or self.exit_code is not None

    @property
    def silent_for(self) -> float:
        """Seconds since its last heartbeat; 0 if it has not given any yet, or has ended."""
        over = self._heard is None or self._code is not None or self.exit_code is not None
        return 0.0 if over or self._heard is None else time.monotonic() - self._heard

    def poll(self) -> int | None:
        """Check whether it has ended."""
        if self.exit_code is None:
            status = self._ssh.poll()
            self._read()
            heard = self._heard or 0.0
            if status is None and self._code is not None and time.monotonic() - heard > _LINGER:
                self._ssh.kill()
            elif status is not None:
                self._end(status)
        return self.exit_code

    def _read(self) -> None:
        assert self._ssh.stdout is not None
        with contextlib.suppress(BlockingIOError, ValueError):  # nothing is there, or it is closed
            while received := os.read(self._ssh.stdout.fileno(), _CHUNK):
                *lines, self._rest = (self._rest + received).split(b"\n")
                for line in lines:
                    text = line.decode(errors="replace")
                    if text.startswith(MARK):  # the shell of the user there may print, too
                        with contextlib.suppress(ValueError):
                            self._take(json.loads(text.removeprefix(MARK)))

    def _take(self, message: Mapping[str, Any]) -> None:
        self._heard = time.monotonic()
        self.pid = message.get("pid", self.pid)
        self.is_stopped = message.get("stopped", self.is_stopped)
        if "failed" in message:
            self._failure = failure = not_started(self.index, self.host, message["failed"])
            failure.worker, failure.host = self.index, self.host
        if message.get("server_lost"):
            self._failure = server_lost_error(self)
        self._code = message.get("exit_code", self._code)

    def _end(self, status: int) -> None:
        """Note that ssh has ended, with this status."""
        if self._failure is None and self._code is None:
            self._failure = self._lost(status)
        self.exit_code = 1 if self._failure is not None or self._code is None else self._code
        self._ended = time.monotonic()
        self._words.put(None)
        self._writer.join(1.0)
        assert self._ssh.stdout is not None
        self._ssh.stdout.close()

    def _lost(self, status: int) -> TfdistrError:
        """The error if ssh has ended before the guard has reported the end of the worker."""
        how = f"ended with status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"
        said = "\n".join(f"  {line}" for line in last_lines(self.log, _LINES)) or "  (nothing)"
        if not self.pid:
            error = ClusterStartError(
                "ssh must start each worker on its host.",
                received=f"ssh {how} without worker {self.index} on {self.host}. Its last lines:\n{said}",
                fix="Each host must let you in by ssh without a password, and have this Python and tfdistr: "
                f"{sys.executable}.",
            )
            error.worker, error.host = self.index, self.host
            return error
        return WorkerFailedError(
            f"Worker {self.index} on {self.host} was lost: its ssh {how} before the worker did.\n\n"
            f"Its last output:\n{said}\n\nIts log: {self.log}",
            worker=self.index,
            host=self.host,
            pid=self.pid,
            log=str(self.log),
            fix="See whether the host runs and can be reached, and whether the system, or somebody else, "
            "ended processes there.",
        )

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to it and to the processes that it started, by its guard."""
        if number == signal.SIGKILL and self._killed is None:
            self._killed = time.monotonic()
        self._words.put({"signal": int(number)})

    def warn(self) -> None:
        """Send SIGTERM, as a scheduler does some time before it ends a process."""
        self.signal_group(signal.SIGTERM)

    def reap(self) -> None:
        """Wait until it has ended, after SIGKILL. If its host is lost, this ends ssh only."""
        until = (self._killed or time.monotonic()) + _REAP
        while self.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        if self.exit_code is None:
            self._ssh.kill()
            self._end(self._ssh.wait())

    def launch_error(self) -> TfdistrError | None:
        """The error if it could not be started, or was lost with its connection."""
        return self._failure

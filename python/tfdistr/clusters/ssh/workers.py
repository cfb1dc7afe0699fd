"""Workers on other hosts, each with its own ssh: its start, its messages, its end and its tunnels."""

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
from pathlib import Path
from typing import Any

from tfdistr.clusters.guard import HEARTBEAT
from tfdistr.clusters.remote_worker import ProgramOutput, RemoteJob, RemoteWorker, message_in, quoted_lines
from tfdistr.clusters.worker_process import lost_worker_error
from tfdistr.errors import ClusterStartError, TfdistrError
from tfdistr.network.ports import free_ports
from tfdistr.utils.log_tail import last_lines

_REAP = 8.0  # seconds that ssh has to exit after SIGKILL; the worker's guard then exits by itself
# Seconds that ssh has to exit after its worker: a process that the worker has left may hold its output.
_LINGER = 5.0
_LINES = 10  # of the output of ssh in an error


@dataclass(frozen=True)
class Remote:
    """A program on a host: ssh starts its guard, whose input gets ``spec``, which may hold secrets."""

    host: str
    ssh: Sequence[str]
    spec: Mapping[str, Any]


class Ssh(RemoteJob):
    """One ssh and the worker that it starts on a host. The worker lives as long as its input."""

    def __init__(self, index: int, remote: Remote, run_dir: str | os.PathLike[str]) -> None:
        super().__init__(Path(run_dir), [index], remote.host)
        (self.worker,) = self.workers
        self._killed: float | None = None
        self._words: queue.SimpleQueue[Mapping[str, object] | None] = queue.SimpleQueue()
        with self.worker.log.open("wb", buffering=0) as output:
            self._ssh = subprocess.Popen(
                list(remote.ssh), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        self._output = ProgramOutput(self._ssh.stdout)
        self._words.put(remote.spec)
        self._writer = threading.Thread(target=self._write, name=f"tfdistr-ssh-{index}", daemon=True)
        self._writer.start()

    def _write(self) -> None:
        """Send messages and heartbeats to the guard. A write may have to wait for the network."""
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

    def look(self) -> None:
        """Process the messages since the last call, and check whether ssh has exited."""
        if self.worker.exit_code is not None:
            return
        status = self._ssh.poll()
        for line in self._output.lines():
            if message := message_in(line):
                self.worker.take(message)
        heard = self.worker.heard or 0.0
        if status is not None:
            self._end(status)
        elif self.worker.reported is not None and time.monotonic() - heard > _LINGER:
            self._ssh.kill()

    def end_reported(self, worker: RemoteWorker) -> None:
        """Wait until ssh exits, because the last output of the worker may still arrive."""

    def _end(self, status: int) -> None:
        """Record that ssh has exited, with this status."""
        code = self.worker.reported
        if code is None and self.failure is None:
            self.fail(self._lost(status), self.worker)
        self.worker.end(1 if code is None or self.failure is not None else code)
        self._words.put(None)
        self._writer.join(1.0)
        self._output.close()

    def _lost(self, status: int) -> TfdistrError:
        """Return the error if ssh has exited before the guard has reported the end of the worker."""
        killed = status < 0
        how = f"was killed by {signal.Signals(-status).name}" if killed else f"exited with status {status}"
        worker, said = self.worker, quoted_lines(last_lines(self.worker.log, _LINES))
        if not worker.pid:
            return ClusterStartError(
                "ssh did not start a worker on its host.",
                received=f"ssh {how} without worker {worker.index} on {worker.host}. Its last lines:\n{said}",
                fix="Let this user in by ssh without a password, and install this Python and tfdistr there: "
                f"{sys.executable}.",
            )
        return lost_worker_error(
            worker,
            f"Worker {worker.index} on {worker.host} was lost: its ssh {how} before the worker did.\n\n"
            f"Its last output:\n{said}",
            fix="Check that the host runs and is reachable, and whether the system, or somebody else, killed "
            "processes there.",
        )

    def send(self, worker: RemoteWorker, number: signal.Signals) -> None:
        """Send a signal to the worker and to the processes that it started, through its guard."""
        if number == signal.SIGKILL and self._killed is None:
            self._killed = time.monotonic()
        self._words.put({"signal": int(number)})

    def reap(self) -> None:
        """Wait until it has exited, after SIGKILL. If its host is lost, this ends ssh only."""
        until = (self._killed or time.monotonic()) + _REAP
        while self.worker.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        if self.worker.exit_code is None:
            self._ssh.kill()
            self._end(self._ssh.wait())


HOST = "127.0.0.1"


@dataclass(frozen=True)
class Tunnels:
    """The connections between workers through ssh, for hosts that only this machine reaches.

    A worker has a port on its host. This machine has a door to it: ssh leads from the door to the port. On
    each other host, ssh leads from the same port back to the door. So the address 127.0.0.1 and this port
    lead to the worker on every host.

    Args:
        ports: The port of each worker, which must be free on all hosts.
    """

    ports: Sequence[int]
    doors: Sequence[int]
    workers_per_host: int

    @classmethod
    def new(cls, workers: int, workers_per_host: int) -> Tunnels:
        """Make tunnels with ports that are free on this machine, which may be one of the hosts."""
        ports = free_ports(2 * workers)
        return cls(ports[:workers], ports[workers:], workers_per_host)

    def options(self, index: int) -> list[str]:
        """Return the ssh options of a worker. The first worker of a host has those of the ways back."""
        # A shared connection would keep the tunnels after the end of the job.
        options = ["-oControlMaster=no", "-oControlPath=none", "-oExitOnForwardFailure=yes",
                   f"-L{HOST}:{self.doors[index]}:{HOST}:{self.ports[index]}"]  # fmt: skip
        host = index // self.workers_per_host
        if index % self.workers_per_host == 0:
            options += [
                f"-R{HOST}:{port}:{HOST}:{door}"
                for other, (port, door) in enumerate(zip(self.ports, self.doors, strict=True))
                if other // self.workers_per_host != host
            ]
        return options

"""A job of workers on hosts by ssh, which do as their test says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hosts
import pytest
from launched import wait_for
from paths import WORKERS

from tfdistr.clusters.ssh.cluster import SshCluster, ssh_cluster
from tfdistr.errors import WorkerFailedError
from tfdistr.supervision.supervisor import WorkerStatus, run_workers


class Job:
    """Runs workers on hosts, and looks whether something is left there."""

    def __init__(self, net: hosts.Hosts, run_dir: Path) -> None:
        self.net = net
        self.run_dir = run_dir
        self.events: list[dict[str, Any]] = []

    def cluster(self, names: str, each: int = 1, **options: Any) -> SshCluster:
        # The hosts reach each other by addresses only.
        addresses = [self.net.address(name) for name in names]
        return ssh_cluster(addresses, each, **{"ssh": self.net.ssh, "warm": False, **options})

    def run(
        self, behaviours: str, names: str = "ab", look: Callable[[dict[str, Any]], object] | None = None,
        heartbeat_timeout: float | None = None, **options: Any,
    ) -> list[WorkerStatus]:  # fmt: skip
        self.run_dir.mkdir(mode=0o700, exist_ok=True)
        command = [sys.executable, str(WORKERS / "worker.py"), behaviours]
        cluster = self.cluster(names, **options)

        def take(event: dict[str, Any]) -> None:
            self.events.append(event)
            if look is not None:
                look(event)

        return run_workers(cluster, command, self.run_dir, take, heartbeat_timeout=heartbeat_timeout)

    def fail(self, behaviours: str, names: str = "ab", **options: Any) -> WorkerFailedError:
        with pytest.raises(WorkerFailedError) as caught:
            self.run(behaviours, names, **options)
        return caught.value

    def left(self) -> list[str]:
        """What still runs on the hosts; the end of a process is seen a little late."""
        wait_for(lambda: not self.net.processes(), 5)
        return self.net.processes()

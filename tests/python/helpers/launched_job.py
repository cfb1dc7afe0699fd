"""A job of workers that do as their test says."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launched import command, events_in, is_there, processes_of

from tfdistr.clusters.local.cluster import local_cluster
from tfdistr.errors import WorkerFailedError
from tfdistr.supervision.supervisor import WorkerStatus, run_workers


class Job:
    """Runs workers in this process, and keeps what they said."""

    def __init__(self, run_dir: Path, carrier: str = "processes") -> None:
        self.run_dir = run_dir
        self.carrier = carrier
        self.events: list[dict[str, Any]] = []
        self.pids: set[int] = set()

    def run(self, behaviours: str, workers: int, **options: Any) -> list[WorkerStatus]:
        retries = {"port_retries": options.pop("port_retries")} if "port_retries" in options else {}
        cluster = local_cluster(workers, warm="warm" in self.carrier, **options)
        self.run_dir.mkdir(exist_ok=True)
        return run_workers(cluster, command(behaviours), self.run_dir, self.take, **retries)

    def fail(self, behaviours: str, workers: int, **options: Any) -> WorkerFailedError:
        with pytest.raises(WorkerFailedError) as caught:
            self.run(behaviours, workers, **options)
        return caught.value

    def take(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        self.pids |= {event["pid"]} if "pid" in event else set()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    job = Job(tmp_path / "run", getattr(request, "param", "processes"))
    monkeypatch.setenv("RUN_OF_TEST", str(job.run_dir))
    yield job
    assert not processes_of(job.run_dir)
    pids = job.pids | {event["pid"] for event in events_in(job.run_dir) if "pid" in event}
    assert pids
    left = [pid for pid in pids if is_there(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left

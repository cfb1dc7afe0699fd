"""Jobs of workers that do as their test says."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launched import command, events_in, is_there, processes_of

from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.errors import TfdistrError
from tfdistr.supervision.supervisor import WorkerStatus, run_workers


class Job:
    """Runs workers, and keeps what they said. A subclass has the cluster."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.events: list[dict[str, Any]] = []

    def cluster(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    def run(
        self, behaviours: str, *arguments: Any, look: Callable[[dict[str, Any]], object] | None = None,
        heartbeat_timeout: float | None = None, **options: Any,
    ) -> list[WorkerStatus]:  # fmt: skip
        self.run_dir.mkdir(mode=0o700, exist_ok=True)
        cluster = self.cluster(*arguments, **options)

        def take(event: dict[str, Any]) -> None:
            self.take(event)
            if look is not None:
                look(event)

        return run_workers(
            cluster, command(behaviours), self.run_dir, take, heartbeat_timeout=heartbeat_timeout
        )

    def fail(self, behaviours: str, *arguments: Any, **options: Any) -> Any:
        with pytest.raises(TfdistrError) as caught:
            self.run(behaviours, *arguments, **options)
        return caught.value

    def take(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]


class LocalJob(Job):
    """A job on this machine, whose workers start cold, or warm."""

    def __init__(self, run_dir: Path, carrier: str = "processes") -> None:
        super().__init__(run_dir)
        self.carrier = carrier

    def cluster(self, workers: int, **options: Any) -> Any:
        return local_cluster(workers, warm="warm" in self.carrier, **options)


@pytest.fixture
def job(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalJob]:
    job = LocalJob(tmp_path / "run", getattr(request, "param", "processes"))
    monkeypatch.setenv("RUN_OF_TEST", str(job.run_dir))
    yield job
    assert not processes_of(job.run_dir)
    pids = {event["pid"] for event in [*job.events, *events_in(job.run_dir)] if "pid" in event}
    assert pids
    left = [pid for pid in pids if is_there(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left

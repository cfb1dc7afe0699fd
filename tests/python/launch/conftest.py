"""Jobs of workers that do as their test says."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launched import events_in, is_there, processes_of
from launched_job import Job


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

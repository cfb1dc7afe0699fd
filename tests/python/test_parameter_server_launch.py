"""What the end of a process means for the others, by its role; the processes do not train."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import tfdistr
from tfdistr.cluster import tf_config
from tfdistr.errors import WorkerFailedError
from tfdistr.launch import run_workers, supervise
from tfdistr.launch.parameter_servers import LocalServers
from tfdistr.launch.process import WorkerProcess
from tfdistr.launch.roles import Role

pytestmark = pytest.mark.timeout(60)
WORKER = Path(__file__).parent / "workers" / "worker.py"


class OneServer:
    """A worker that can be replaced, and its chief."""

    workers, follow, start_timeout = 2, True, 60.0
    roles = (Role("Worker 0 of 1", "worker 0", replaceable=True), Role("The chief", "chief 0", leads=True))

    def start(self, command: Any, run_dir: Path) -> list[WorkerProcess]:
        return [self._process(index, command, run_dir) for index in range(2)]

    def replace(self, index: int, run_dir: Path) -> WorkerProcess:
        return self._process(index, [sys.executable, str(WORKER), os.environ["NEXT_OF_TEST"]], run_dir)

    def _process(self, index: int, command: Any, run_dir: Path) -> WorkerProcess:
        cluster = tfdistr.local_cluster(2)
        config = tf_config(worker=["a:1", "a:2"], type="worker", index=index)
        return cluster.start_process(index, command, run_dir, config, cluster.environment(index))


class Run:
    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.events: list[dict[str, Any]] = []

    def run(self, behaviours: str) -> list[Any]:
        command = [sys.executable, str(WORKER), behaviours]
        return run_workers(OneServer(), command, self.run_dir, self.events.append)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("NEXT_OF_TEST", "kill")
    monkeypatch.setattr(supervise, "REPLACEMENTS", 2)
    monkeypatch.setattr(supervise, "SERVER_GRACE", 0.5)
    return Run(tmp_path)


def test_a_worker_that_dies_again_and_again_is_given_up(job):
    with pytest.raises(WorkerFailedError) as caught:
        job.run("kill,wait")
    error = caught.value
    assert (error.worker, error.exit_code) == (0, -signal.SIGKILL)
    assert error.message.startswith(f"Worker 0 of 1 on {error.host} was killed by SIGKILL")
    assert [event["worker"] for event in job.of("replaced")] == [0, 0]
    assert len({event["pid"] for event in job.of("started") if event["worker"] == 0}) == 3
    logs = sorted(path.name for path in (job.run_dir / "logs").iterdir())
    assert logs == ["worker-0.log", "worker-0.log.1", "worker-0.log.2", "worker-1.log"]
    lines = [event["line"] for event in job.of("log") if event["worker"] == 0]
    assert lines == ["reading the data"] * 3
    assert "Another process takes its place." in job.of("warning")[0]["message"]


def test_a_worker_that_fails_by_its_own_fault_is_not_replaced(job):
    with pytest.raises(WorkerFailedError, match="ValueError: bad loss"):
        job.run("fail,wait")
    assert not job.of("replaced")


def test_a_chief_that_dies_ends_its_servers(job):
    with pytest.raises(WorkerFailedError) as caught:
        job.run("wait,kill")
    assert caught.value.message.startswith(f"The chief on {caught.value.host} was killed by SIGKILL")
    assert [status.status for status in caught.value.workers] == ["stopped", "failed"]


def test_servers_that_stay_when_their_chief_is_done_are_ended(job):
    statuses = job.run("wait,finish")
    assert [status.status for status in statuses] == ["done", "done"]
    assert statuses[0].exit_code == -signal.SIGTERM


def test_a_job_ends_well_although_a_worker_was_replaced(job, monkeypatch):
    monkeypatch.setenv("NEXT_OF_TEST", "finish")
    statuses = job.run("kill,finish")
    assert [status.status for status in statuses] == ["done", "done"]
    assert len(job.of("failed")) == 0


def test_the_processes_of_a_cluster_with_parameter_servers():
    servers = LocalServers(tfdistr.local_cluster(2, ps=2))
    assert [str(task) for task in servers.tasks] == ["worker 0", "worker 1", "ps 0", "ps 1", "chief 0"]
    assert [role.title for role in servers.roles] == [
        "Worker 0 of 2", "Worker 1 of 2", "The parameter server ps 0 of 2", "The parameter server ps 1 of 2",
        "The chief",
    ]  # fmt: skip
    assert [role.replaceable for role in servers.roles] == [True, True, False, False, False]

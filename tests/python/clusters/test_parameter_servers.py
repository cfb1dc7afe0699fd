"""What the end of a process means for the others, by its role; the processes do not train."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from launched import command
from launched_job import Job

import tfdistr
from tfdistr.clusters.cluster import ProcessRole
from tfdistr.clusters.local import parameter_servers
from tfdistr.clusters.worker_process import WorkerProcess, stop
from tfdistr.errors import WorkerFailedError
from tfdistr.rendezvous.config import tf_config
from tfdistr.rendezvous.protocol import PORT_IN_USE
from tfdistr.servers.server_task import _start_error as start_error
from tfdistr.servers.server_task import lost_server
from tfdistr.supervision import supervisor
from tfdistr.supervision.failures import Failure

pytestmark = pytest.mark.timeout(60)
CONFIG = tf_config(worker="a:1", ps="b:2", chief="c:3", type="ps", index=0)


class OneServer:
    """A worker that can be replaced, and its chief."""

    workers, follow, start_timeout, tasks = 2, True, 60.0, ()
    roles = (
        ProcessRole("Worker 0 of 1", "worker 0", replaceable=True),
        ProcessRole("The chief", "chief 0", leads=True),
    )

    def start(self, command: Any, run_dir: Path) -> list[WorkerProcess]:
        return [self._process(index, command, run_dir) for index in range(2)]

    def start_again(self, index: int, run_dir: Path) -> WorkerProcess:
        return self._process(index, command(os.environ["NEXT_OF_TEST"]), run_dir)

    def _process(self, index: int, command: Any, run_dir: Path) -> WorkerProcess:
        cluster = tfdistr.local_cluster(2)
        config = tf_config(worker=["a:1", "a:2"], type="worker", index=index)
        return cluster.start_process(index, command, run_dir, config, cluster.environment(index))


class ServerJob(Job):
    def cluster(self) -> OneServer:
        return OneServer()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerJob:
    monkeypatch.setenv("NEXT_OF_TEST", "kill")
    monkeypatch.setattr(supervisor, "REPLACEMENTS", 2)
    monkeypatch.setattr(supervisor, "SERVER_GRACE", 0.5)
    return ServerJob(tmp_path)


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


@pytest.mark.parametrize("replaceable", [True, False])
@pytest.mark.parametrize(
    "behaviours", ["abort_late,finish_late", "fail_at_last,finish", "exit_at_last,finish"]
)
def test_how_a_server_leaves_does_not_matter(job, monkeypatch, behaviours, replaceable):
    """It crashes once its work is done, or after its chief has ended well."""
    monkeypatch.setattr(supervisor, "SERVER_GRACE", 10.0)
    server = ProcessRole("A server", "ps 0", replaceable=replaceable)
    monkeypatch.setattr(OneServer, "roles", (server, OneServer.roles[1]))
    statuses = job.run(behaviours)
    assert [status.status for status in statuses] == ["done", "done"]
    assert statuses[0].exit_code not in (0, None)
    assert not job.of("replaced")


@pytest.mark.parametrize(
    ("message", "taken"),
    [
        ("A rule.\nReceived: ps 0 (a:1): No such device\nFix: If the port is in use, free it.", False),
        (f"A rule.\nReceived: worker 0: another process listens on its port\nFix: {PORT_IN_USE}", True),
        (str(start_error("Could not start gRPC server", CONFIG)), True),
        (str(start_error("No such device\nand more", CONFIG)), False),
    ],
)
def test_only_a_port_that_is_taken_is_chosen_anew(message, taken):
    event = {"worker": 0, "time": 0.0, "error_type": "ClusterStartError", "message": message}
    assert Failure.reported(event, 0, 1).port_in_use is taken


def test_what_a_server_says_that_cannot_start():
    assert str(start_error("No such device\nand more", CONFIG)).splitlines() == [
        "Cannot start the server of the task.",
        "Received: ps 0 (b:2): No such device",
        "Fix: Check the addresses of the cluster, and what TensorFlow's message names on this machine.",
    ]
    assert str(start_error("Could not start gRPC server", CONFIG)).splitlines() == [
        "Cannot listen on the port of the task's address.",
        "Received: ps 0 (b:2): Could not start gRPC server",
        "Fix: Stop the process that uses this task's port, or give the task another address.",
    ]


SAY_PATH = "import json, os, sys; json.dump(os.environ.get('PYTHONPATH'), open(sys.argv[-1] + '.json', 'w'))"


@pytest.mark.parametrize("env", [{}, {"PYTHONPATH": "of the user"}, {"PYTHONPATH": ""}])
@pytest.mark.parametrize("of_r", [False, True])  # whose package has tfdistr where Python does not look
def test_servers_find_the_modules_of_the_user(env, of_r, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "of the session")
    monkeypatch.chdir(tmp_path)
    of_server = SAY_PATH.replace(".json", ".server.json")
    monkeypatch.setattr(parameter_servers, "_SERVER", (sys.executable, "-S", "-c", of_server))
    servers = tfdistr.local_cluster(1, ps=1, env=env, warm=False).with_servers()
    python = str(Path(sys.executable).resolve()) if of_r else sys.executable
    processes = servers.start([python, "-S", "-c", SAY_PATH], tmp_path)
    try:
        for process in processes:
            process._process.wait(30)
    finally:
        stop(processes)
    files = ("0.server.json", "1.server.json", "2.json")
    said = [json.loads((tmp_path / file).read_text()) for file in files]
    users = env.get("PYTHONPATH", "of the session")
    own = str(Path(tfdistr.__file__).parents[1])
    of_servers = os.pathsep.join(filter(None, [own, users])) if of_r else users
    assert said == [of_servers, of_servers, users]


SERVERS = tf_config(worker=["a:1", "a:2"], ps=["b:2", "b:3"], chief="c:3", type="chief", index=0)


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("{{node}} /job:ps/replica:0/task:0/device:CPU:0: failed to connect\nAdditional GRPC error "
         "information from remote target /job:ps/replica:0/task:1 while calling /tensorflow", 3),
        ("Error reported from /job:worker/replica:0/task:1: from remote target /job:ps/replica:0/task:1: "
         "Socket closed", 3),
        ("{{node}} /job:worker/replica:0/task:0, /job:ps/replica:0/task:1: Socket closed", 3),
        ("{{node}} /job:worker/replica:0/task:0: Socket closed", None),
    ],
)  # fmt: skip
def test_the_server_that_did_not_answer_is_named(text, server):
    lost = lost_server(tf.errors.UnavailableError(None, None, text), SERVERS)
    if server is None:
        assert lost is None
    else:
        assert (lost.worker, lost.host) == (server, "b")
        assert lost.message.startswith("The parameter server ps 1 at b:3 was lost, with")


def test_a_job_ends_well_although_a_worker_was_replaced(job, monkeypatch):
    monkeypatch.setenv("NEXT_OF_TEST", "finish")
    statuses = job.run("kill,finish")
    assert [status.status for status in statuses] == ["done", "done"]
    assert len(job.of("failed")) == 0


def test_the_processes_of_a_cluster_with_parameter_servers():
    servers = tfdistr.local_cluster(2, ps=2).with_servers()
    assert [str(task) for task in servers.tasks] == ["worker 0", "worker 1", "ps 0", "ps 1", "chief 0"]
    assert [role.title for role in servers.roles] == [
        "Worker 0 of 2", "Worker 1 of 2", "The parameter server ps 0 of 2", "The parameter server ps 1 of 2",
        "The chief",
    ]  # fmt: skip
    assert [role.replaceable for role in servers.roles] == [True, True, False, False, False]

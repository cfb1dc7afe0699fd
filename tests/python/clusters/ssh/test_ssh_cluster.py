"""Workers that ssh starts on several hosts: network namespaces here, each with an ssh server of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import hosts
import pytest
from launched import assert_output_comes, wait_for, when_ready
from paths import WORKERS
from ssh_job import Job

import tfdistr
from tfdistr.errors import ClusterStartError
from tfdistr.supervision.events import EventReader

pytestmark = pytest.mark.timeout(240)


def test_workers_on_two_hosts(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOME": "/nowhere", "OF_THE_CALLER": "yes", "TF_CONFIG": "not json"}.items():
        monkeypatch.setenv(name, value)
    statuses = job.run("environment", each=2, env={"TOKEN": "a b'\n\u20ac", "LONG": "x" * 100_000})
    a, b = job.net.address("a"), job.net.address("b")
    assert [(status.index, status.host, status.status, status.exit_code) for status in statuses] == [
        (0, a, "done", 0), (1, a, "done", 0), (2, b, "done", 0), (3, b, "done", 0),
    ]  # fmt: skip
    started = {event["worker"]: event["pid"] for event in job.of("started")}
    assert started == {status.index: status.pid for status in statuses}
    values = {event["worker"]: event["values"] for event in job.of("environment")}
    for index in range(4):
        got = values[index]
        assert (got["TOKEN"], len(got["LONG"]), got["OF_THE_CALLER"]) == ("a b'\n\u20ac", 100_000, "yes")
        assert got["HOME"] != "/nowhere"
        config = tfdistr.ClusterConfig.from_json(got["TF_CONFIG"])
        assert config.worker_index == index
        assert [address.rpartition(":")[0] for address in config.jobs["worker"]] == [a, a, b, b]
    assert {event["folder"] for event in job.of("environment")} == {os.getcwd()}


def test_output_comes_through_the_connection(job: Job) -> None:
    assert_output_comes(job)


@pytest.mark.slow(reason="network namespaces with ssh servers, and timeouts")
def test_more_workers_of_a_host_than_sshd_lets_log_in_at_once(job: Job) -> None:
    assert [status.status for status in job.run("finish", "a", each=18)] == ["done"] * 18


LISTEN = """
import socket, sys
server = socket.create_server(('::', int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
print(flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def listening(net: hosts.Hosts, name: str, port: int) -> Iterator[None]:
    """A process on a host has a port."""
    command = ["ip", "netns", "exec", net.of(name), sys.executable, "-c", LISTEN, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"\n"
        yield
        process.stdin.close()


@pytest.mark.slow(reason="network namespaces with ssh servers, and timeouts")
def test_a_port_that_is_taken_meanwhile(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = tfdistr.clusters.ssh.ssh_cluster.ask_hosts, []

    with contextlib.ExitStack() as held:

        def ask(*arguments: Any, **options: Any) -> Any:
            answers = real(*arguments, **options)
            asked.append(answers[1].facts["ports"][0])
            if len(asked) == 1:
                held.enter_context(listening(job.net, "b", asked[0]))
            return answers

        monkeypatch.setattr("tfdistr.clusters.ssh.ssh_cluster.ask_hosts", ask)
        job.run("listen,listen")
    assert len(set(asked)) == len(asked) == 2
    assert [event["reason"] for event in job.of("restart")] == ["port in use"]
    assert (job.run_dir / "logs" / "worker-1.log.1").exists()


@pytest.mark.slow(reason="network namespaces with ssh servers, and timeouts")
def test_a_host_that_is_cut_off_is_named_and_a_short_cut_ends_nothing(job: Job) -> None:
    times: dict[str, float] = {}

    def lose() -> None:
        job.net.cut("b")
        time.sleep(3)
        job.net.mend("b")
        time.sleep(8)  # longer than the launcher waits: it has heard of b again
        times["lost"] = time.monotonic()
        job.net.cut("b")

    try:
        error = job.fail("wait", look=when_ready(2, lose), heartbeat_timeout=6)
        assert 4 < time.monotonic() - times["lost"] < 40
        # The guard there hears nothing of its launcher, and ends its worker.
        assert wait_for(lambda: not job.net.processes(), 40)
    finally:
        job.net.mend("b")
    message = str(error)
    b = re.escape(job.net.address("b"))
    assert re.match(rf"Worker 1 of 2 on {b} sent no heartbeat for \d+ s: its machine or network ", message)
    assert message.endswith("host runs and is reachable, or pass a larger `heartbeat_timeout`.")
    assert (error.worker, error.host) == (1, job.net.address("b"))


@pytest.mark.slow(reason="network namespaces with ssh servers, and timeouts")
def test_a_host_that_is_switched_off_is_named(job: Job) -> None:
    error = job.fail("wait", look=when_ready(2, lambda: job.net.end_all("b")))
    b = job.net.address("b")
    assert re.match(
        rf"Worker 1 on {re.escape(b)} was lost: its ssh exited with status \d+ before the worker did\.\n\n"
        r"Its last output:\n  .*\n\nIts log: ", str(error), re.DOTALL,
    )  # fmt: skip
    assert str(error).endswith("whether the system, or somebody else, killed processes there.")
    assert (error.worker, error.host) == (1, b)


@pytest.mark.slow(reason="network namespaces with ssh servers, and timeouts")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_on_the_hosts_when_the_caller_ends(job: Job, number: signal.Signals) -> None:
    job.run_dir.mkdir(mode=0o700)
    worker = [sys.executable, str(WORKERS / "worker.py"), "wait,halt"]
    addresses = ",".join(map(job.net.address, "ab"))
    carrier = f"ssh:{job.net.ssh}:{addresses}"
    parent = [sys.executable, str(WORKERS / "parent.py"), carrier, "1", str(job.run_dir)]
    process = subprocess.Popen([*parent, *worker], stderr=subprocess.DEVNULL)
    try:
        ready, reader = set(), EventReader(job.run_dir, 2)

        def all_ready() -> bool:
            ready.update(event["worker"] for event in reader.poll() if event["event"] == "ready")
            return len(ready) == 2

        assert wait_for(all_ready, 60)
        assert len(job.net.processes()) >= 4
        process.send_signal(number)
        assert process.wait(15) == -number
    finally:
        process.kill()
        process.wait()


def test_hosts_that_cannot_be_reached_are_named(job: Job) -> None:
    error, d = job.fail("finish", "ad"), job.net.address("d")
    assert isinstance(error, ClusterStartError)
    assert str(error).startswith(
        "Each host must let this user in by ssh without a password, and have the Python of this machine.\n"
        f"Received: {d}: "
    )
    assert str(error).endswith(f"The same Python must be at this path on that host: {sys.executable}.")
    assert (error.worker, error.host) == (1, d)


@pytest.mark.slow(reason="network namespaces with ssh servers, and timeouts")
@pytest.mark.usefixtures("apart")
def test_workers_that_reach_each_other_through_ssh_only(job: Job) -> None:
    job.run("meet_peers", each=2, tunnels=True)
    met = job.of("met")
    assert [event["listens"] for event in met] == ["127.0.0.1"] * 4
    (tasks,) = {tuple(event["tasks"]) for event in met}
    assert [address.rpartition(":")[0] for address in tasks] == ["127.0.0.1"] * 4


@pytest.mark.slow(reason="network namespaces with ssh servers, and timeouts")
def test_a_host_that_makes_no_tunnels(job: Job) -> None:
    with listening(job.net, "b", 40_000):
        error = job.fail("finish", "b", tunnels=True, ssh=f"{job.net.ssh} -R 40000:127.0.0.1:1")
    b = job.net.address("b")
    assert error.message == "ssh did not start a worker on its host."
    assert error.received.splitlines() == [
        f"ssh exited with status 255 without worker 0 on {b}. Its last lines:",
        "  Error: remote port forwarding failed for listen port 40000",
    ]
    assert error.fix.endswith(f"install this Python and tfdistr there: {sys.executable}.")
    assert (error.worker, error.host) == (0, b)

"""What becomes of workers in actors of Ray: where they run, how they end, and what is left. No TensorFlow."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Job
from launched import assert_output_comes, command, events_in, processes_of, wait_for, when_ready
from observed import containing, everybody
from ray_nodes import CPUS, Ray

import tfdistr
from tfdistr.network.ports import free_ports

pytestmark = pytest.mark.timeout(120)
HOST = socket.gethostname()


def test_workers_on_three_nodes(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOME": "/nowhere", "OF_THE_CALLER": "yes", "TF_CONFIG": "not json"}.items():
        monkeypatch.setenv(name, value)
    env = {"TOKEN": "a b'\n\u20ac", "LONG": "x" * 100_000}
    statuses = job.run(
        "environment", 3, placement_strategy="STRICT_SPREAD", env=env,
        runtime_env={"env_vars": {"BY_RAY": "1"}},
    )  # fmt: skip
    assert [(s.index, s.host, s.status, s.exit_code) for s in statuses] == [
        (index, HOST, "done", 0) for index in range(3)
    ]
    started = {event["worker"]: event["pid"] for event in job.of("started")}
    assert started == {status.index: status.pid for status in statuses}
    values = {event["worker"]: event["values"] for event in job.of("environment")}
    assert len({values[index]["RAY_RAYLET_PID"] for index in range(3)}) == 3
    for index in range(3):
        got = values[index]
        assert (got["TOKEN"], len(got["LONG"]), got["OF_THE_CALLER"]) == ("a b'\n\u20ac", 100_000, "yes")
        assert (got["BY_RAY"], got["TF_NUM_INTRAOP_THREADS"]) == ("1", "1")
        assert got["HOME"] != "/nowhere"
        config = tfdistr.ClusterConfig.from_json(got["TF_CONFIG"])
        assert config.worker_index == index
        assert len(set(config.jobs["worker"])) == 3
    assert {event["folder"] for event in job.of("environment")} == {os.getcwd()}


def test_env_is_in_no_file_and_in_no_command_line(job: Job) -> None:
    word, found = secrets.token_hex(16), []

    def look(event: dict[str, Any]) -> None:
        if event["event"] == "started":
            found.append(containing(word, everybody(), job.run_dir))

    job.run("finish", env={"TOKEN_OF_TEST": word}, look=look)
    assert found == [[], []]
    assert containing(word, set(), job.run_dir) == []


def test_without_a_c_compiler_the_user_is_told_the_ports(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in map(Path, os.get_exec_path()):  # Ray itself needs programs to start actors
        for program in folder.glob("*") if folder.is_dir() else ():
            if program.name not in ("cc", "gcc", "clang") and not (tmp_path / program.name).exists():
                (tmp_path / program.name).symlink_to(program)
    job.run("environment", runtime_env={"env_vars": {"PATH": str(tmp_path)}}, start_timeout=60)
    configs = [event["values"]["TF_CONFIG"] for event in job.of("environment")]
    addresses = tfdistr.ClusterConfig.from_json(configs[0]).jobs["worker"]
    ports = ", ".join(address.rpartition(":")[2] for address in addresses)
    (said,) = caplog.messages
    assert f"through ports {ports}: nothing keeps other machines out" in said
    assert "because there is no C compiler" in said
    assert said.endswith(' pass env={"TFDISTR_LOOPBACK": "none"} to ray_cluster().')


def test_output_and_logs(job: Job) -> None:
    assert_output_comes(job)


def test_an_actor_that_is_killed(job: Job) -> None:
    def kill() -> None:
        pids = [event["pid"] for event in events_in(job.run_dir) if event["event"] == "started"]
        guard = int(open(f"/proc/{pids[0]}/stat").read().rpartition(")")[2].split()[1])  # noqa: SIM115
        actor = int(open(f"/proc/{guard}/stat").read().rpartition(")")[2].split()[1])  # noqa: SIM115
        os.kill(actor, signal.SIGKILL)

    error = job.fail("wait", look=when_ready(2, kill))
    said = error.message.splitlines()
    who = f"Worker {error.worker} of 2 on {HOST}"
    assert said[0].startswith(f"{who} was lost with its Ray actor on node ")
    assert said[2] == "Ray says:"
    assert error.fix.startswith("Check that the node runs (ray status).")


def test_a_lost_node_is_named(job: Job, ray: Ray) -> None:
    gone = ray.others[1].node_id
    lose = when_ready(3, lambda: ray.lose(1))
    try:
        error = job.fail("wait", 3, placement_strategy="STRICT_SPREAD", look=lose)
    finally:
        ray.others.append(ray.add())
    assert error.message.startswith(f"Worker {error.worker} of 3 on {HOST} was lost with Ray node {gone}.")
    assert error.host == HOST


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_launcher_that_ends(job: Job, how: signal.Signals) -> None:
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from tfdistr.clusters.ray.ray_cluster import ray_cluster\n"
        "from tfdistr.supervision.supervisor import run_workers\n"
        "run_workers(ray_cluster(2, address=sys.argv[1]), sys.argv[3:], sys.argv[2])"
    )
    job.run_dir.mkdir(mode=0o700)
    words = [job.ray.address, str(job.run_dir), *command("wait")]
    launcher = subprocess.Popen([sys.executable, "-c", program, *words], stderr=subprocess.PIPE, text=True)

    def ready() -> bool:
        return [event["event"] for event in events_in(job.run_dir)].count("ready") == 2

    assert wait_for(ready, 60)
    launcher.send_signal(how)
    _, said = launcher.communicate(timeout=30)
    assert ("KeyboardInterrupt" in said) == (how == signal.SIGINT)
    assert wait_for(lambda: not processes_of(job.run_dir), 10)


def test_a_cluster_that_is_too_small_is_refused_at_once(job: Job) -> None:
    began = time.monotonic()
    error = job.fail("finish", 4, cores_per_worker=CPUS, gpus_per_worker=1)
    assert time.monotonic() - began < 30
    node = f"{HOST} with {CPUS} CPU, 0 GPU"
    assert str(error).splitlines() == [
        "The Ray cluster does not have the resources that the workers need.",
        f"Received: 4 workers with {CPUS} CPU, 1 GPU each (SPREAD), and the nodes {node}; {node}; {node}; "
        f"free: {3 * CPUS} CPU, 0 GPU",
        "Fix: Request fewer workers, or less for each, stop other jobs, or add nodes. Pass a larger "
        "`start_timeout` to wait for nodes.",
    ]


def test_a_place_that_never_comes(job: Job) -> None:
    error = job.fail("finish", 4, cores_per_worker=CPUS, start_timeout=3)
    assert error.message == "The Ray cluster had no resources for the workers within 3 s."
    lines = [event["line"] for event in job.of("log")]
    said = "Ray has no free resources for all workers yet: 4 workers with 2 CPU each (SPREAD), and the nodes "
    assert lines[0].startswith(said)


def test_an_address_at_which_nobody_listens(job: Job) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    error = job.fail("finish", address=address)
    assert str(error).splitlines() == [
        "The address of ray_cluster() must be the address of a running Ray cluster.",
        f"Received: {address}, where none answers: Connection refused",
        "Fix: Start Ray there (ray start --head), or leave `address` out and unset RAY_ADDRESS to start Ray "
        "on this machine for the job.",
    ]


def test_a_runtime_env_that_ray_does_not_know(job: Job) -> None:
    error = job.fail("finish", runtime_env={"working_dir": "/nowhere/at/all"})
    assert error.message == "Ray has rejected the job."
    assert "/nowhere/at/all" in str(error.received)

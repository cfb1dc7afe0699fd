"""What a cluster on this machine is made of: its arguments, ports, and the environment of a worker."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from paths import WORKERS
from slow import mostly_slow

import tfdistr
from tfdistr.clusters import worker_process
from tfdistr.clusters.local.local_cluster import describe_local_cluster, local_cluster
from tfdistr.errors import ClusterStartError
from tfdistr.network import ports
from tfdistr.network.loopback import keep_to_loopback
from tfdistr.network.ports import free_ports
from tfdistr.rendezvous.config import parse_tf_config
from tfdistr.supervision.events import EventReader
from tfdistr.supervision.supervisor import run_workers
from tfdistr.utils import processes

WORKER = WORKERS / "worker.py"


def test_ports_are_different_free_and_out_of_the_kernels_way() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    chosen = free_ports(50)
    assert len(set(chosen)) == 50
    for port in chosen:
        assert port >= 10_000
        assert not low <= port <= high
        with socket.socket() as server:
            server.bind(("", port))


@pytest.mark.parametrize("host", ["127.0.0.1", "", "::1"])
def test_a_port_in_use_on_any_interface_is_passed_over(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = free_ports(2)
    monkeypatch.setattr(ports, "_candidates", lambda: [taken, free])
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        server.bind((host, taken))
        server.listen()
        assert [free_ports(1) for _ in range(10)] == [[free]] * 10
        with pytest.raises(ClusterStartError) as caught:
            free_ports(2)
    assert caught.value.received == "1 free ports of 2"


def test_each_port_is_held_until_all_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    bind, chosen = ports._bind, []

    def bind_as_another_launcher_would(port: int) -> socket.socket:
        for earlier in chosen:
            with pytest.raises(OSError, match="in use"):
                bind(earlier)
        taken = bind(port)
        chosen.append(port)
        return taken

    monkeypatch.setattr(ports, "_bind", bind_as_another_launcher_would)
    assert free_ports(4) == chosen
    for port in chosen:
        bind(port).close()


@pytest.mark.parametrize("text", ["1024\t65535\n", "nonsense", None])
def test_ports_where_the_kernel_takes_all_or_says_nothing(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "range"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(ports, "_EPHEMERAL", path)
    candidates = ports._candidates()
    assert (49_152 in candidates) == (text == "1024\t65535\n")
    assert 20_000 in candidates
    assert len(free_ports(2)) == 2


def test_the_users_random_numbers_do_not_choose_the_ports() -> None:
    import random

    random.seed(1)
    first = free_ports(3)
    random.seed(1)
    assert free_ports(3) != first


# Slow: the fork server imports TensorFlow.
@pytest.mark.parametrize("warm", mostly_slow([False, True], quick=[False]))
def test_the_environment_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: bool) -> None:
    monkeypatch.setenv("TF_CONFIG", "not json")
    monkeypatch.setenv("GRPC_VERBOSITY", "INFO")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    monkeypatch.chdir(tmp_path)
    run_dir = tmp_path / "a run"
    cluster = local_cluster(2, env={"EXTRA": "a b", "PYTHONUNBUFFERED": "x"}, warm=warm)
    run_workers(cluster, [sys.executable, str(WORKER), "environment"], run_dir)
    events = [event for event in EventReader(run_dir, 2).poll() if event["event"] == "environment"]
    configs = {event["worker"]: parse_tf_config(event["values"]["TF_CONFIG"]) for event in events}
    assert [configs[index].worker_index for index in (0, 1)] == [0, 1]
    assert configs[0].addresses == configs[1].addresses
    assert all(address.startswith("127.0.0.1:") for address in configs[0].addresses)
    for event in events:
        values = event["values"]
        # The fork server stands for this process: it kills the worker when this is gone.
        assert (values["TFDISTR_PARENT_PID"] == str(os.getpid())) is not warm
        assert values["TF_CPP_MIN_LOG_LEVEL"] == "2"
        assert values["GRPC_VERBOSITY"] == "INFO"  # the user's word counts
        assert values["CUDA_VISIBLE_DEVICES"] == "1"
        assert (values["EXTRA"], values["PYTHONUNBUFFERED"]) == ("a b", "x")
        assert values["PATH"] == os.environ["PATH"]
        assert (event["folder"], event["stdin"]) == (str(tmp_path), "")


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ClusterStartError, match=r"Worker 0 of 3 could not be started: \[Errno") as caught:
        run_workers(local_cluster(3), ["/nowhere/Rscript", "worker.R"], tmp_path)
    assert caught.value.received == f"/nowhere/Rscript worker.R {tmp_path} 0"


@pytest.mark.parametrize("error", [OSError("no more processes"), KeyboardInterrupt()])
@pytest.mark.parametrize(("before", "failing"), [(1, 0), (2, 1)])  # each has another process beside it
def test_no_worker_is_left_when_a_later_one_cannot_be_started(
    before: int, failing: int, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def later_fails(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        if len(started) == before:
            raise error
        started.append(popen(*args, **kwargs))
        return started[-1]

    keep_to_loopback({})  # which starts processes, too
    monkeypatch.setattr(worker_process.subprocess, "Popen", later_fails)
    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else ClusterStartError
    said = None if expected is KeyboardInterrupt else f"Worker {failing} of 2 could not"
    with pytest.raises(expected, match=said):
        run_workers(local_cluster(2, warm=False), [sys.executable, str(WORKER), "wait"], tmp_path)
    assert len(started) == before
    assert all(process.returncode is not None for process in started)


_SAY_ALIVE = "from tfdistr.utils.processes import die_with_parent; die_with_parent(); print('alive')"


def _say_alive(parent: int | None) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != processes.PARENT}
    if parent is not None:
        env[processes.PARENT] = str(parent)
    return subprocess.run(
        [sys.executable, "-c", _SAY_ALIVE], env=env, capture_output=True, text=True, timeout=60
    )


def test_a_worker_goes_on_if_its_parent_is_there_or_it_was_started_by_hand() -> None:
    assert _say_alive(os.getpid()).stdout == "alive\n"
    assert _say_alive(None).stdout == "alive\n"


@pytest.mark.parametrize("reaped", [True, False])
def test_a_worker_ends_at_once_if_its_parent_is_gone_already(reaped: bool) -> None:
    parent = subprocess.Popen(["true"])
    if reaped:
        parent.wait()
    else:
        time.sleep(0.3)  # it has ended, and is a zombie
    result = _say_alive(parent.pid)
    parent.wait()
    assert (result.returncode, result.stdout) == (1, "")


def test_a_cluster_in_words(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    secret = {"TOKEN": "secret", "A": "1"}
    said = {
        "1 worker on this machine": describe_local_cluster(1),
        "3 workers on this machine\n  and 1 parameter server\n  with TOKEN\n  with A": describe_local_cluster(
            3, ps=1, env=secret
        ),
        "2 to 4 workers on this machine\n  and 2 parameter servers": describe_local_cluster((2, 4), ps=2),
        "4 workers by ssh: 2 on each of me@a, b\n  with A": tfdistr.ssh_cluster(
            ["me@a", "b"], workers_per_host=2, env={"A": "1"}
        ),
        "6 workers by Slurm, on 2 nodes": tfdistr.slurm_cluster(2, workers_per_host=3),
        "1 worker by Slurm, on 1 node": tfdistr.slurm_cluster(1),
        "3 workers by Ray at auto, each with 2 CPU, 0.5 GPU": tfdistr.ray_cluster(
            3, cores_per_worker=2, gpus_per_worker=0.5, address="auto"
        ),
        "1 worker by Ray, each with 1 CPU": tfdistr.ray_cluster(1),
    }
    assert [str(cluster) for cluster in said.values()] == list(said)

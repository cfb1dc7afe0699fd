"""Processes with a TF_CONFIG become the ranks of one MPI, without mpiexec."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import netns
import numpy as np
import pytest
from clusters import Ended, run_cluster
from launched import wait_for
from paths import PROGRAMS

import tfdistr

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow(reason="starts three or four processes that train")]


def train(folder: Path, workers: int, what: str = "nothing") -> list[Ended]:
    return run_cluster("mpi_by_rendezvous.py", workers, [str(folder), what], timeout=200)


def found(folder: Path, ended: list[Ended]) -> list[dict[str, Any]]:
    for each in ended:
        assert each.status == 0, each.output[-3000:]
    return [json.loads((folder / f"{index}.json").read_text()) for index in range(len(ended))]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("alone")
    return found(folder, train(folder, 1))[0]


@pytest.mark.parametrize(
    ("workers", "what"),
    [(3, "nothing"), (2, "another node"), (4, "two hosts"), (2, "two devices")],
    ids=["3 on a node", "2 by TCP", "4 on two hosts", "2 that compute on a device beside the first"],
)
def test_the_weights_are_those_of_one_worker(alone, tmp_path, workers, what):
    results = found(tmp_path, train(tmp_path, workers, what))
    for result in results:
        assert (result["communication"], result["workers"]) == ("mpi", workers)
        assert result["names"] == []  # of shared memory, which a killed process would leave
        assert result["variables"] == {}  # a program that a worker starts is no rank
        assert result["weights"] == results[0]["weights"]
        check_weights(result, alone)


def check_weights(result: dict[str, Any], alone: dict[str, Any]) -> None:
    """Compare the weights of a worker with those of one worker alone."""
    for mine, others in zip(result["weights"], alone["weights"], strict=True):
        np.testing.assert_allclose(mine, others, atol=1e-6)


@contextlib.contextmanager
def namespaces(names: str) -> Iterator[netns.Namespaces]:
    """Hosts in network namespaces."""
    spaces = netns.Namespaces(f"tfm{os.getpid()}", netns.own_net("10.98"), list(names))
    spaces.add()
    try:
        yield spaces
    finally:
        spaces.remove()


def start_in(
    spaces: netns.Namespaces, names: str, arguments: list[str], port: int,
    variables: Mapping[str, Mapping[str, str]] | None = None,
) -> list[subprocess.Popen[str]]:  # fmt: skip
    """Start a worker on each host."""
    plan = tfdistr.tf_config(worker=[f"{spaces.address(name)}:{port}" for name in names])
    command = [sys.executable, str(PROGRAMS / "mpi_by_rendezvous.py"), *arguments]
    return [
        subprocess.Popen(
            ["ip", "netns", "exec", spaces.of(name), *command], text=True,
            env={**os.environ, **environment, **(variables or {}).get(name, {})},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for name, environment in zip(names, plan.environments(), strict=True)
    ]  # fmt: skip


def end(workers: list[subprocess.Popen[str]]) -> None:
    for worker in workers:
        worker.kill()
        worker.communicate()


@pytest.mark.parametrize(("workers", "what"), [(3, "killed"), (4, "killed on two hosts")])
def test_a_killed_worker_is_named(tmp_path, workers, what):
    first, second, *others = train(tmp_path, workers, what)
    assert second.status == -9
    for each in (first, *others):
        assert each.status == 1
        assert "WorkerFailedError: Worker 1 failed: 127.0.0.1:" in each.output
        assert "exited without an error message: it was killed, or it crashed." in each.output
        assert each.seconds < 60


def test_an_error_reaches_the_others(tmp_path):
    ended = train(tmp_path, 3, "an error")
    assert [each.status for each in ended] == [1, 1, 1]
    assert "ValueError: this epoch is wrong" in ended[1].output
    for each in (ended[0], ended[2]):
        assert "Worker 1 failed: ValueError: this epoch is wrong" in each.output


def test_what_keeps_workers_from_becoming_ranks(tmp_path):
    ended = train(tmp_path, 3, "no mpi")
    for index, each in enumerate(ended):
        assert each.status not in (0, None)
        if index != 1:
            assert "ClusterStartError: The workers cannot become the ranks of one MPI job." in each.output
            assert each.seconds < 110
    assert "worker 1: no mpi4py" in ended[0].output


@pytest.mark.skipif(netns.missing() is not None, reason=str(netns.missing()))
def test_a_machine_that_does_not_answer_is_lost(tmp_path):
    with namespaces("ab") as spaces:
        workers = start_in(spaces, "ab", [str(tmp_path), "cut"], 2222)
        try:
            assert wait_for((tmp_path / "began").exists, 120)
            netns.run("ip", "link", "set", spaces.outside("b"), "down")
            began = time.monotonic()
            said = [worker.communicate(timeout=60)[0] for worker in workers]
            assert time.monotonic() - began < 30
        finally:
            end(workers)
    assert "Worker 1 failed: " in said[0]
    assert "Worker 0 failed: " in said[1]


def test_else_the_ring_is_and_the_chief_says_why(alone, tmp_path, monkeypatch):
    monkeypatch.setenv("COMMUNICATION", "auto")
    ended = train(tmp_path, 2, "no mpi")
    for result in found(tmp_path, ended):
        assert result["communication"] == "ring"
        check_weights(result, alone)
    why = "because MPI is not available: worker 1: no mpi4py. On CPUs a step may take"
    assert f"The gradients are exchanged with the ring, {why}" in ended[0].output
    assert "The gradients are exchanged" not in ended[1].output


@pytest.mark.skipif(netns.missing() is not None, reason=str(netns.missing()))
def test_between_hosts_mpi_has_the_ports_of_the_rendezvous_alone(tmp_path):
    """No other port, no other interface: what a firewall lets through for the one is enough for the other."""
    with namespaces("ab") as spaces:
        workers = start_in(spaces, "ab", [str(tmp_path), "cut"], 2222)
        try:
            assert wait_for((tmp_path / "began").exists, 120)
            for name in "ab":
                said = netns.run("ip", "netns", "exec", spaces.of(name), "ss", "-Htln")
                assert [line.split()[3] for line in said.splitlines()] == [f"{spaces.address(name)}:2222"]
        finally:
            end(workers)


@pytest.mark.skipif(netns.missing() is not None, reason=str(netns.missing()))
def test_an_interface_that_the_others_do_not_reach(tmp_path):
    with namespaces("ab") as spaces:
        netns.run("ip", "-n", spaces.of("b"), "link", "add", "lost0", "type", "veth")
        netns.run("ip", "-n", spaces.of("b"), "address", "add", "10.253.7.1/32", "dev", "lost0")
        netns.run("ip", "-n", spaces.of("b"), "link", "set", "lost0", "up")
        with_it = {"b": {"FI_TCP_IFACE": "lost0"}, "a": {}}
        workers = start_in(spaces, "ab", [str(tmp_path), "another node"], 2222, with_it)
        try:
            said = [worker.communicate(timeout=100)[0] for worker in workers]
        finally:
            end(workers)
    for each in said:
        assert "worker 0 cannot connect to worker 1 at 10.253.7.1:2222, which " in each

"""One suite for all engines: the numbers of one worker, failures, Ctrl-C, output, what is left."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import leftovers
import netns
import numpy as np
import pytest
import stores
from engines import HERE, RUN, Engine, both, pods_options
from launched import wait_for
from pods import OUTSIDE

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.slow(reason="each job starts workers through another engine"),
]


def local(request: pytest.FixtureRequest) -> Engine:
    return Engine(both("local_cluster(2)"))


def ssh_hosts(request: pytest.FixtureRequest, warm: bool = True) -> Engine:
    net = request.getfixturevalue("net")
    a, b = (net.address(name) for name in "ab")
    python = f"tfdistr.ssh_cluster([{a!r}, {b!r}], ssh={net.ssh!r}, warm={warm})"
    r = f"ssh_cluster(c('{a}', '{b}'), ssh = {json.dumps(net.ssh)}, warm = {str(warm).upper()})"
    return Engine({"python": python, "r": r}, hosts=[a, b])


def cold_ssh_hosts_by_ring(request: pytest.FixtureRequest) -> Engine:
    return replace(ssh_hosts(request, warm=False), env={"COMMUNICATION": "ring"})


def slurm_allocation(request: pytest.FixtureRequest) -> Engine:
    lab = request.getfixturevalue("lab")
    return Engine(both("slurm_cluster()"), before=["salloc", "-N2", "-n2"], env=lab.env)


def slurm_batch(request: pytest.FixtureRequest) -> Engine:
    return Engine(both("slurm_cluster(nodes=2)"), env=request.getfixturevalue("lab").env)


def run(request: pytest.FixtureRequest) -> Engine:
    return Engine(None, before=[*RUN, "-n", "2", "--communication", "ring"])


def run_on_hosts(request: pytest.FixtureRequest) -> Engine:
    net = request.getfixturevalue("net")
    words = ["--hosts", ",".join(net.address(name) for name in "ab"), "--ssh", net.ssh]
    return Engine(None, before=[*RUN, *words, "--communication", "ring"], store=("0.0.0.0", net.here))


def run_in_allocation(request: pytest.FixtureRequest) -> Engine:
    lab = request.getfixturevalue("lab")
    return Engine(None, before=["salloc", "-N2", "-n2", *RUN], env=lab.env)


def pods(request: pytest.FixtureRequest) -> Engine:
    if netns.missing() is not None:
        pytest.skip(f"no pods to test with: {netns.missing()}")
    return Engine(
        None, before=[sys.executable, str(HERE / "job_of_pods.py")], options=pods_options,
        store=("0.0.0.0", OUTSIDE), killed="pod 1 with status 137 failed",
    )  # fmt: skip


def pods_by_ring(request: pytest.FixtureRequest) -> Engine:
    engine = pods(request)

    def options(what: str, folder: Path) -> list[str]:
        return [*pods_options(what, folder), "--env", "COMMUNICATION=ring"]

    return replace(engine, options=options)


def ray_nodes(request: pytest.FixtureRequest) -> Engine:
    ray = request.getfixturevalue("ray")
    return Engine(both(f"ray_cluster(2, address='{ray.address}')"))


CLUSTERS: dict[str, Callable[[pytest.FixtureRequest], Engine]] = {
    make.__name__: make
    for make in (local, ssh_hosts, cold_ssh_hosts_by_ring, slurm_allocation, slurm_batch, run, run_on_hosts,
                 run_in_allocation, pods, pods_by_ring, ray_nodes)
}  # fmt: skip


@pytest.fixture(params=list(CLUSTERS))
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = CLUSTERS[request.param](request)
    before = leftovers.Present()
    yield made
    # The idle processes of Ray belong to the Ray cluster.
    left = [line for line in leftovers.left_since(before) if "ray::IDLE" not in line]
    assert not left, "The job has left:\n" + "\n".join(left)


def read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


class Job:
    """A job of a caller's program, and what it has said."""

    def __init__(self, engine: Engine, language: str, what: str, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            engine.command(language, what, folder), cwd=folder, env=engine.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._salloc = list(engine.before[:1]) == ["salloc"]

    def end(self, timeout: float = 200.0) -> tuple[int, str]:
        """Wait for its end; return the exit status and the output."""
        try:
            said, error = self.process.communicate(timeout=timeout)
        finally:
            self.process.kill()
        return self.process.returncode, said + error

    def interrupt(self) -> None:
        """Send SIGINT to the caller, as Ctrl-C does."""
        pid = self.process.pid
        if self._salloc:
            (pid,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        os.kill(pid, signal.SIGINT)

    def began(self) -> bool:
        """Whether both workers train."""
        return all(read(self.folder / f"began-{index}").endswith("\n") for index in (0, 1))

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    def log(self, worker: int) -> str:
        return (self.folder / "run" / "logs" / f"worker-{worker}.log").read_text()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one worker gives."""
    one = Job(Engine({"python": "None"}), "python", "train", tmp_path_factory.mktemp("alone"))
    status, said = one.end()
    assert status == 0, said
    return one.result


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for mine, others in zip(found["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(mine, others, atol=1e-6)
    assert found["history"].keys() == expected["history"].keys()
    for name, values in expected["history"].items():
        np.testing.assert_allclose(found["history"][name], values, atol=1e-6)


@pytest.mark.parametrize("language", ["python", "r"])
def test_the_numbers_of_one_worker_and_the_output_of_all(engine, language, alone, tmp_path):
    job = Job(engine, language, "train", tmp_path)
    status, said = job.end()
    assert status == 0, said
    assert_same(job.result, alone)
    assert job.result["workers"] == 2
    if engine.hosts is not None:
        assert job.result["hosts"] == list(engine.hosts)
    for worker in (0, 1):
        assert f"the model of worker {worker}" in job.log(worker)


@pytest.mark.parametrize("language", ["python", "r"])
def test_an_error_in_the_model(engine, language, tmp_path):
    status, said = Job(engine, language, "error", tmp_path).end()
    assert status not in (0, None)
    assert "failed: " in said, said
    assert "this model has no layers" in said
    assert not (tmp_path / "result.json").exists()


def test_a_killed_worker_is_named(engine, tmp_path):
    status, said = Job(engine, "python", "kill", tmp_path).end()
    assert status not in (0, None)
    assert re.search(engine.killed, said), said


@pytest.mark.parametrize("engine", ["ssh_hosts", "slurm_batch", "run"], indirect=True)
def test_a_killed_worker_is_replaced(engine, alone, tmp_path):
    job = Job(engine, "python", "restart", tmp_path)
    status, said = job.end()
    assert status == 0, said
    assert (tmp_path / "killed").exists()
    assert_same(job.result, alone)


def test_a_killed_worker_is_replaced_and_the_run_is_in_a_store(engine, alone, tmp_path, monkeypatch):
    monkeypatch.setenv("STORE", "s3://bucket/run")
    with stores.s3_server(*engine.store) as server:
        job = Job(engine, "python", "restart", tmp_path)
        status, said = job.end()
    assert status == 0, said
    assert (tmp_path / "killed").exists()
    assert_same(job.result, alone)
    assert server.written[-1].endswith("/result.json")
    marks = [path for path in server.written if path.endswith(".mark")]
    assert marks
    assert all(path.startswith("/bucket/run/generations/") for path in marks)


def test_ctrl_c_ends_all_workers(engine, tmp_path):
    job = Job(engine, "python", "wait", tmp_path)
    wait_for(job.began, 120)
    job.interrupt()
    status, said = job.end(60)
    assert status != 0 or engine.before[:1] == ["salloc"]  # salloc hides a signal
    assert "KeyboardInterrupt" in said or "Interrupted: " in said
    pids = [int((tmp_path / f"began-{index}").read_text()) for index in (0, 1)]
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 10)

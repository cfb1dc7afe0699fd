"""Workers that a real Slurm starts on three nodes of this machine, and the errors if they do not run."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import launched_job
import pytest
import slurm_lab
from launched import command, is_there, processes_of, wait_for, when_ready

from tfdistr.clusters.guard import HEARTBEAT
from tfdistr.clusters.slurm.slurm_cluster import SlurmCluster, slurm_cluster
from tfdistr.errors import ClusterStartError, WorkerFailedError

pytestmark = pytest.mark.timeout(240)


class Job(launched_job.Job):
    """Runs workers by Slurm."""

    def __init__(self, lab: slurm_lab.Lab, run_dir: Path) -> None:
        super().__init__(run_dir)
        self.lab = lab

    def cluster(self, **options: Any) -> SlurmCluster:
        return slurm_cluster(**options)

    @property
    def lines(self) -> list[str]:
        return [event["line"] for event in self.of("log") if event["worker"] is None]

    @property
    def number(self) -> str:
        """The number of the job of sbatch."""
        return self.lines[0].split()[2]


@pytest.fixture
def job(lab: slurm_lab.Lab, tmp_path: Path) -> Iterator[Job]:
    made = Job(lab, tmp_path / "run")
    yield made
    assert wait_for(lambda: not lab.jobs(), 30), lab.jobs()
    pids = [event["pid"] for event in made.of("started")]
    assert wait_for(lambda: not [pid for pid in pids if is_there(pid)], 15)
    assert wait_for(lambda: not processes_of(made.run_dir), 15)


class Allocation:
    """An allocation of salloc, whose shell would be this process."""

    def __init__(self, lab: slurm_lab.Lab, *options: str) -> None:
        program = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"
        self._ended = False
        self._process = subprocess.Popen(
            ["salloc", "--quiet", *options, sys.executable, "-c", program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **lab.env},
        )  # fmt: skip
        assert self._process.stdout is not None
        self.env = {
            name: value
            for name, value in json.loads(self._process.stdout.readline()).items()
            if name.startswith("SLURM_")
        }

    def end(self) -> None:
        if not self._ended:
            self._process.communicate(timeout=60)  # it closes the standard input
        self._ended = True


@pytest.fixture
def allocate(lab: slurm_lab.Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Allocation]]:
    made: list[Allocation] = []

    def allocate(*options: str) -> Allocation:
        made.append(Allocation(lab, *options))
        for name, value in made[-1].env.items():
            monkeypatch.setenv(name, value)
        return made[-1]

    yield allocate
    for allocation in made:
        allocation.end()


def test_a_job_of_sbatch(job: Job) -> None:
    options = {"comment": "two words", "no-kill": True}
    statuses = job.run("finish", nodes=2, setup="export OF_SETUP=1", options=options)
    assert [(s.index, s.host, s.status, s.exit_code) for s in statuses] == [
        (0, "n9", "done", 0), (1, "n10", "done", 0),
    ]  # fmt: skip
    pids = {event["worker"]: event["pid"] for event in job.of("started")}
    assert pids == {status.index: status.pid for status in statuses}
    assert job.lines[0].startswith(f"Slurm job {job.number} waits in the queue: PENDING")
    # A job that has ended at the next look was never seen to run.
    states = f"Slurm job {job.number} (waits in the queue: PENDING.*|runs, after .*)"
    assert all(re.fullmatch(states, line) for line in job.lines)
    assert (job.run_dir / "job.sh").read_text().splitlines()[:7] == [
        "#!/bin/sh", "#SBATCH --job-name=tfdistr", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1",
        "#SBATCH --no-requeue", "#SBATCH --comment='two words'", "#SBATCH --no-kill",
    ]  # fmt: skip


def test_workers_in_an_allocation_are_as_it_says(
    job: Job, allocate: Callable[..., Allocation], monkeypatch: pytest.MonkeyPatch
) -> None:
    allocation = allocate("--nodes=2", "--ntasks=3")
    statuses = job.run("finish")
    assert [(s.index, s.host, s.status) for s in statuses] == [
        (0, "n9", "done"), (1, "n9", "done"), (2, "n10", "done"),
    ]  # fmt: skip
    assert job.lines == []
    with pytest.raises(ClusterStartError, match="The allocation of Slurm must have the nodes") as caught:
        slurm_cluster(nodes=3).check()
    assert caught.value.received == f"job {allocation.env['SLURM_JOB_ID']} with 2 nodes, and 3 asked for"
    with pytest.raises(ClusterStartError) as caught:
        slurm_cluster(workers_per_host=2, cores_per_worker=2).check()
    assert caught.value.received == (
        f"job {allocation.env['SLURM_JOB_ID']} with nodes with 2, 1 processors, and 4 asked for on a node: "
        "2 workers with 2 each"
    )
    allocation.end()
    for name in allocation.env.keys() - job.lab.env.keys():
        monkeypatch.delenv(name)


def test_a_partition_that_does_not_exist(job: Job) -> None:
    error = job.fail("finish", nodes=2, partition="nowhere")
    assert error.message == "Slurm has rejected the job."
    assert error.received.startswith("invalid partition specified: nowhere; Batch job submission failed: ")


def test_a_queue_that_lasts_too_long(job: Job) -> None:
    error = job.fail("finish", nodes=2, options={"begin": "now+600"}, start_timeout=2)
    assert error.received == f"job {job.number}, which waited: PENDING (BeginTime); it was cancelled"
    assert job.lines == [f"Slurm job {job.number} waits in the queue: PENDING (BeginTime)."]


@pytest.mark.slow(reason="a real Slurm, and its timeouts")
def test_a_node_that_is_lost(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfdistr.clusters.slurm.sbatch._LATE", 0.0)  # here is one file system
    lose = when_ready(2, lambda: job.lab.kill_node("n10"))
    try:
        error = job.fail("wait", look=lose, heartbeat_timeout=3 * HEARTBEAT, nodes=2)
    finally:
        job.lab.start_node("n10")
        assert wait_for(lambda: job.lab.states()["n10"] in ("idle", "mix", "alloc"), 90)
    assert isinstance(error, WorkerFailedError)
    assert (error.worker, error.host) == (1, "n10")


@pytest.mark.slow(reason="a real Slurm, and its timeouts")
def test_a_time_limit_is_named(job: Job) -> None:
    error = job.fail("wait", nodes=2, time=1)
    assert error.message.startswith("Workers 0 on n9, 1 on n10 were lost: Slurm job ")
    assert " ended: TIMEOUT" in error.message
    assert error.fix.startswith("Pass a longer `time`.")


PROGRAM = """
import sys
from pathlib import Path
from tfdistr.clusters.slurm.slurm_cluster import slurm_cluster
from tfdistr.supervision.supervisor import run_workers
def say(event):
    if event["event"] == "ready" or event["worker"] is None:
        print(event["event"], flush=True)
run_workers(slurm_cluster(**eval(sys.argv[1])), sys.argv[3:], Path(sys.argv[2]), say)
"""


@pytest.mark.slow(reason="a real Slurm, and its timeouts")
@pytest.mark.parametrize(
    ("where", "number"),
    [
        *itertools.product(["batch", "queue", "allocation"], [signal.SIGINT, signal.SIGKILL]),
        ("batch", signal.SIGTERM),
    ],
)
def test_nothing_is_left_when_the_caller_ends(
    job: Job, where: str, number: signal.Signals, allocate: Callable[..., Allocation]
) -> None:
    options: dict[str, Any] = {"nodes": 2}
    if where == "allocation":
        allocation = allocate("--nodes=2")
    if where == "queue":
        options["options"] = {"begin": "now+600"}
    job.run_dir.mkdir(mode=0o700)
    arguments = [sys.executable, "-c", PROGRAM, repr(options), str(job.run_dir), *command("wait")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        seen = [caller.stdout.readline()]
        while where != "queue" and seen.count("ready\n") < 2 and seen[-1]:
            seen.append(caller.stdout.readline())
        assert seen[-1] == ("log\n" if where == "queue" else "ready\n")
        caller.send_signal(number)
        caller.communicate(timeout=90)
    assert caller.returncode == -number
    if where == "allocation":
        assert wait_for(lambda: not processes_of(job.run_dir), 20)
        allocation.end()
    assert wait_for(lambda: not job.lab.jobs(), 30), job.lab.jobs()

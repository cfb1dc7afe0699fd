"""Where mpiexec, or a part of it, is ended, the workers are lost, and it is said where."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from launched import command, processes_of
from launched_job import Job

from tfdistr._utils.mpi_ranks import RANKS
from tfdistr.errors import ClusterStartError, WorkerFailedError
from tfdistr.launch import rank_guard
from tfdistr.launch.local import local_cluster
from tfdistr.launch.mpi_cluster import LocalMpi
from tfdistr.launch.supervisor import run_workers

pytestmark = pytest.mark.timeout(60)

HOST = socket.gethostname()


def process_with(run_dir: Path, text: str) -> int:
    """The process of a job that has a text in its command, which must be one."""
    ((pid, _),) = [item for item in processes_of(run_dir).items() if text in item[1]]
    return pid


@pytest.mark.parametrize("job", ["mpi"], indirect=True)
@pytest.mark.parametrize(
    ("part", "said", "worker"),
    [
        ("/hydra_pmi_proxy ", " with what mpiexec runs there, and then mpiexec ended with status 255.", 0),
        (" run ", f": mpiexec on {HOST} was killed by SIGKILL.", None),
    ],
)
def test_workers_are_lost_with_mpiexec(job: Job, part: str, said: str, worker: int | None) -> None:
    def take(event: dict[str, Any]) -> None:
        job.take(event)
        if len(job.of("ready")) == 2 and event["event"] == "ready":
            os.kill(process_with(job.run_dir, part), signal.SIGKILL)

    job.run_dir.mkdir()
    with pytest.raises(WorkerFailedError) as caught:
        run_workers(LocalMpi(local_cluster(2)), command("wait_with_grandchild"), job.run_dir, take)
    assert not processes_of(job.run_dir)  # also for who starts it again at once
    error = caught.value
    assert error.message.startswith(
        f"Workers 0 on {HOST}, 1 on {HOST} were lost{said}\n\nIts last lines:\n  "
    )
    assert error.fix == (
        "See whether the hosts run and can be reached, and whether the system, or somebody else, ended "
        "processes of mpiexec."
    )
    assert (error.worker, error.host, error.exit_code) == (worker, HOST, None)
    assert error.pid in (job.pids if worker == 0 else [None])
    assert [(status.status, status.exit_code) for status in error.workers] == [("failed", 1)] * 2


@pytest.mark.parametrize("job", ["mpi"], indirect=True)
def test_a_program_that_mpiexec_cannot_start(job: Job) -> None:
    job.pids.add(0)
    job.run_dir.mkdir()
    with pytest.raises(ClusterStartError) as caught:
        run_workers(LocalMpi(local_cluster(2)), ["/nowhere/Rscript"], job.run_dir, job.take)
    lines = str(caught.value).splitlines()
    assert lines[0] in [
        f"Worker {index} could not be started on {HOST}: "
        "[Errno 2] No such file or directory: '/nowhere/Rscript'."
        for index in (0, 1)
    ]
    assert lines[1:] == [
        "Fix: See what the system names: the program must exist and be executable, and the run directory be "
        "writable.",
    ]


def test_a_rank_that_is_not_told_its_rank(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name not in RANKS}
    command = [sys.executable, "-I", "-S", rank_guard.__file__, "rank", str(tmp_path)]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "mpiexec does not tell a process its rank, in none of PMI_RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK, "
        "SLURM_PROCID.\n"
    )


TOLD_LATE = """
import os, signal, sys
import rank_guard

say = rank_guard._say

def say_and_be_told(**fields):
    say(**fields)
    if "exit_code" in fields:
        os.kill(os.getpid(), signal.SIGINT)

rank_guard._say, rank_guard._LINGER = say_and_be_told, 600
os._exit(rank_guard.rank(sys.argv[1]))
"""


def test_a_guard_does_not_wait_that_is_told_to_end_just_after_its_worker(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    spec = {"command": ["sh", "-c", "exit 3"], "environments": [{}], "signs_of_life": False, "warm": [None]}
    (tmp_path / rank_guard.SPEC).write_text(json.dumps(spec))
    ended = subprocess.run(
        [sys.executable, "-c", TOLD_LATE, str(tmp_path)], cwd=Path(rank_guard.__file__).parent,
        env=os.environ | {"PMI_RANK": "0"}, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert ended.returncode == 3, ended.stderr
    assert '"exit_code": 3' in ended.stdout


@pytest.mark.parametrize("job", ["mpi", "processes"], indirect=True)
def test_what_still_runs_of_a_session_that_was_killed_says_nothing_to_the_next(job: Job) -> None:
    logs = job.run_dir / "logs"
    logs.mkdir(parents=True)
    names = ["mpiexec.log", "worker-0.log"] if job.carrier == "mpi" else ["worker-0.log"]
    with ExitStack() as stack:
        earlier = [stack.enter_context((logs / name).open("w")) for name in names]

        def take(event: dict[str, Any]) -> None:
            job.take(event)
            for file in earlier if event["event"] == "started" else ():
                print(
                    f'{rank_guard.MARK}{{"rank": 0, "exit_code": -9, "server_lost": true}}',
                    file=file,
                    flush=True,
                )

        local = local_cluster(1, warm=False)
        cluster = LocalMpi(local) if job.carrier == "mpi" else local
        (status,) = run_workers(cluster, command("finish_late"), job.run_dir, take)
        assert status.status == "done"
        for name in names:
            assert '"exit_code": -9' not in (logs / name).read_text()

"""The guard between srun and a worker."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launched import command
from launched_job import Job

from tfdistr.clusters import guard
from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.rendezvous.launcher_ranks import RANKS
from tfdistr.supervision.supervisor import run_workers

pytestmark = pytest.mark.timeout(60)


def test_a_rank_that_is_not_told_its_rank(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name not in RANKS}
    command = [sys.executable, "-I", "-S", guard.__file__, "rank", str(tmp_path)]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "srun has set no rank for this process, in none of PMI_RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK, "
        "SLURM_PROCID.\n"
    )


TOLD_LATE = """
import os, signal, sys
import guard

say = guard.say

def say_and_be_told(**fields):
    say(**fields)
    if "exit_code" in fields:
        os.kill(os.getpid(), signal.SIGINT)

guard.say, guard._LINGER = say_and_be_told, 600
os._exit(guard.rank(sys.argv[1]))
"""


def test_a_guard_does_not_wait_that_is_told_to_end_just_after_its_worker(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    spec = {"command": ["sh", "-c", "exit 3"], "environments": [{}]}
    (tmp_path / guard.SPEC).write_text(json.dumps(spec))
    ended = subprocess.run(
        [sys.executable, "-c", TOLD_LATE, str(tmp_path)], cwd=Path(guard.__file__).parent,
        env=os.environ | {"PMI_RANK": "0"}, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert ended.returncode == 3, ended.stderr
    assert '"exit_code": 3' in ended.stdout


@pytest.mark.parametrize("job", ["processes"], indirect=True)
def test_what_still_runs_of_a_session_that_was_killed_says_nothing_to_the_next(job: Job) -> None:
    log = job.run_dir / "logs" / "worker-0.log"
    log.parent.mkdir(parents=True)
    with log.open("w") as earlier:

        def take(event: dict[str, Any]) -> None:
            job.take(event)
            if event["event"] == "started":
                print(f'{guard.MARK}{{"rank": 0, "exit_code": -9}}', file=earlier, flush=True)

        cluster = local_cluster(1, warm=False)
        (status,) = run_workers(cluster, command("finish_late"), job.run_dir, take)
        assert status.status == "done"
        assert '"exit_code": -9' not in log.read_text()

"""Ranks of MPI that wait for one that does not come."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from clusters import MPIEXEC, PROGRAMS, run_cluster, run_commands

from tfdistr.jobs.strategies import MultiWorkerMirrored

pytestmark = [pytest.mark.timeout(120), pytest.mark.alone]  # others have names in memory, too
SHARED = Path("/dev/shm")


def start(*ranks: str, seconds: str = "60") -> tuple[list[str], float]:
    """What ranks printed of which each does what is said, and after how many seconds the job had ended."""
    each, names = [[what, seconds] for what in ranks], set(SHARED.glob("mpich_shm_*"))
    (ended,) = run_cluster("mpi_start.py", len(ranks), *each, timeout=60, mpi=True, start_warm=False)
    assert (ended.status == 0) == (set(ranks) == {"come"})
    assert not watchers()
    assert set(SHARED.glob("mpich_shm_*")) <= names
    return ended.output.splitlines(), ended.seconds


def watchers() -> list[str]:
    """The processes of this session that watch over the start of a rank."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
            mine = f"PYTEST_CURRENT_TEST={os.environ['PYTEST_CURRENT_TEST']}" in (
                file.with_name("environ").read_text()
            )
        except OSError:
            continue
        if mine and any(word.endswith(b"tfdistr/collectives/mpi/init_timeout.py") for word in words):
            found.append(str(words))
    return found


def error_of(lines: list[str]) -> list[str]:
    (first,) = (index for index, line in enumerate(lines) if line.startswith("ClusterStartError: "))
    return lines[first : first + 3]


def test_ranks_that_all_come_start():
    assert "".join(start("come", "come", "come")[0]).count("3 ranks") == 3


def test_a_rank_that_ends_before_is_noticed_long_before_start_timeout():
    lines, seconds = start("come", "end")
    assert "no such file: pictures.zip" in lines
    rule, received, fix = error_of(lines)
    assert rule == "ClusterStartError: Not all workers started MPI."
    assert re.fullmatch(
        r"Received: worker 0 on \S+ \(process \d+\): waited for worker 1, which has exited", received
    )
    assert fix.startswith("Fix: See the output of that worker;")
    assert seconds < 30


def test_a_rank_that_does_not_come_is_named_after_start_timeout():
    lines, seconds = start("sleep", "come", seconds="3")
    rule, received, _ = error_of(lines)
    assert rule == (
        "ClusterStartError: Not all workers started MPI within 3 s, which is `start_timeout`."
    )
    assert received.endswith("waited for worker 0, which runs, but has not called MPI_Init")
    assert seconds < 30


def test_a_rank_with_a_process_table_of_its_own_does_not_take_others_for_ended():
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make namespaces")
    program = [sys.executable, str(PROGRAMS / "mpi_start.py")]
    late = ["sh", "-c", f"sleep 4; exec {' '.join(program)} come 60"]
    command = [str(MPIEXEC), "-n", "1", *alone, *program, "come", "60", ":", "-n", "1", *alone, *late]
    (ended,) = run_commands([command], [os.environ | {"TF_CONFIG": ""}], 60, start_warm=False)
    assert ended.status == 0, ended.output
    assert ended.output.count("2 ranks") == 2


def test_ranks_that_are_missing_on_another_host_are_told():
    # One that comes, and is told that it is alone on its host; and one that nothing tells to be of this job.
    program = [sys.executable, str(PROGRAMS / "mpi_start.py")]
    here = ["env", "MPI_LOCALNRANKS=1", *program, "come", "2"]
    there = ["env", "-u", "PMI_RANK", *program, "sleep", "2"]
    command = [str(MPIEXEC), "-n", "1", *here, ":", "-n", "1", *there]
    (ended,) = run_commands([command], [os.environ | {"TF_CONFIG": ""}], 60, start_warm=False)
    assert ended.status != 0
    received = error_of(ended.output.splitlines())[1]
    assert received.endswith("waited for a worker that is not visible from here")


def test_a_rank_whose_arguments_are_refused_has_not_started_mpi(monkeypatch):
    # Its peers wait for it at their start, which has a limit; in MPI_Finalize there would be none.
    monkeypatch.setenv("PMI_SIZE", "3")
    monkeypatch.setattr("tfdistr.jobs.strategies.base.world", lambda: pytest.fail("MPI was started"))
    assert MultiWorkerMirrored(communication="mpi").destination(None) == (None, 3)

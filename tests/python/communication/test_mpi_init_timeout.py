"""Ranks of MPI that wait for one that does not come."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clusters import MPIEXEC, PROGRAMS, run_cluster, run_commands

from tfdistr.jobs.kinds import KINDS
from tfdistr.launch import rank_guard

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
        if mine and any(word.endswith(b"tfdistr/communication/mpi_init_timeout.py") for word in words):
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
    assert rule == "ClusterStartError: Each worker must come to the start of MPI."
    assert re.fullmatch(
        r"Received: worker 0 on \S+ \(process \d+\): waited for worker 1, which has ended", received
    )
    assert fix.startswith("Fix: See what that worker has printed;")
    assert seconds < 30


def test_a_rank_that_does_not_come_is_named_after_start_timeout():
    lines, seconds = start("sleep", "come", seconds="3")
    rule, received, _ = error_of(lines)
    assert rule == (
        "ClusterStartError: Each worker must come to the start of MPI within 3 s, which is `start_timeout`."
    )
    assert received.endswith("waited for worker 0, which is there, but has not come so far")
    assert seconds < 30


@pytest.mark.slow
def test_a_rank_that_is_told_to_end_while_it_waits_leaves_no_shared_memory(tmp_path):
    program, before = f"{sys.executable} {PROGRAMS / 'mpi_start.py'}", set(SHARED.glob("mpich_shm_*"))
    script = f'[ "$2" = 0 ] && exec {program} come 60; exec {program} sleep 60'  # $2 is the rank
    spec = {"command": ["sh", "-c", script, "sh"], "environments": [{}, {}], "signs_of_life": False,
            "warm": [None, None]}  # fmt: skip
    (tmp_path / rank_guard.SPEC).write_text(json.dumps(spec))
    (tmp_path / "logs").mkdir()
    ranks = [str(MPIEXEC), "-n", "2", sys.executable, "-I", "-S", rank_guard.__file__, "rank", str(tmp_path)]
    with subprocess.Popen(ranks, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = [process.stdout.readline().removeprefix(rank_guard.MARK) for _ in range(2)]
            workers = [json.loads(line)["pid"] for line in said]
            end = time.monotonic() + 60
            while not set(SHARED.glob("mpich_shm_*")) - before and time.monotonic() < end:
                time.sleep(0.05)
            assert set(SHARED.glob("mpich_shm_*")) - before
            for worker in workers:
                status = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
                os.kill(int(status[1]), signal.SIGINT)  # its guard
            process.wait(30)
        finally:
            process.kill()
    assert set(SHARED.glob("mpich_shm_*")) == before


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
    assert received.endswith("waited for a worker that is not to be seen from here")


def test_a_rank_whose_arguments_are_refused_has_not_started_mpi(monkeypatch):
    # Its peers wait for it at their start, which has a limit; in MPI_Finalize there would be none.
    monkeypatch.setenv("PMI_SIZE", "3")
    monkeypatch.setattr("tfdistr.jobs.kinds.world", lambda: pytest.fail("MPI was started"))
    assert KINDS["multi_worker_mirrored"].destination(None, "mpi") == (None, 3)

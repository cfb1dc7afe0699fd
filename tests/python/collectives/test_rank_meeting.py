"""Ranks of an MPI launcher that wait for each other, also for one that does not come."""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clusters import MPIEXEC, PROGRAMS, run_cluster, run_commands

from tfdistr.collectives.mpi import rank_meeting
from tfdistr.collectives.mpi.rank_meeting import RankMeeting
from tfdistr.jobs.strategies import MultiWorkerMirrored

pytestmark = [pytest.mark.timeout(120), pytest.mark.alone]  # others have names in memory, too
SHARED = Path("/dev/shm")
PROGRAM = [sys.executable, str(PROGRAMS / "mpi_start.py")]


def start(*ranks: str, seconds: str = "60") -> tuple[list[str], float]:
    """What ranks printed of which each does what is said, and after how many seconds the job had ended."""
    each, names = [[what, seconds] for what in ranks], set(SHARED.glob("mpich_shm_*"))
    (ended,) = run_cluster("mpi_start.py", len(ranks), *each, timeout=60, mpi=True, start_warm=False)
    assert (ended.status == 0) == (set(ranks) <= {"come", "late"})
    assert set(SHARED.glob("mpich_shm_*")) <= names
    return ended.output.splitlines(), ended.seconds


def error_of(lines: list[str]) -> list[str]:
    (first,) = (index for index, line in enumerate(lines) if line.startswith("ClusterStartError: "))
    return lines[first : first + 3]


def test_ranks_that_all_come_start_and_a_waiting_one_leaves_its_core_to_others():
    output = "\n".join(start("come", "come", "late")[0])
    assert output.count("3 ranks") == 3
    for waited, used in re.findall(r"come: 3 ranks after (\S+) s, (\S+) s", output):
        assert float(waited) > 2
        assert float(used) < float(waited) / 2


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
    assert rule == ("ClusterStartError: Not all workers started MPI within 3 s, which is `start_timeout`.")
    assert received.endswith("waited for worker 0, which runs, but has not called MPI_Init")
    assert seconds < 30


def test_a_rank_with_a_process_table_of_its_own_does_not_take_others_for_ended():
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make namespaces")
    late = ["sh", "-c", f"sleep 4; exec {' '.join(PROGRAM)} come 60"]
    command = [str(MPIEXEC), "-n", "1", *alone, *PROGRAM, "come", "60", ":", "-n", "1", *alone, *late]
    (ended,) = run_commands([command], [os.environ | {"TF_CONFIG": ""}], 60, start_warm=False)
    assert ended.status == 0, ended.output
    assert ended.output.count("2 ranks") == 2


def test_ranks_that_are_missing_on_another_host_are_told_and_leave_no_names():
    # One that comes, and is told that it is alone on its host; and one that nothing tells to be of this job.
    here = ["env", "MPI_LOCALNRANKS=1", *PROGRAM, "come", "2"]
    there = ["env", "-u", "PMI_RANK", *PROGRAM, "sleep", "2"]
    command, names = [str(MPIEXEC), "-n", "1", *here, ":", "-n", "1", *there], set(SHARED.glob("mpich_shm_*"))
    (ended,) = run_commands([command], [os.environ | {"TF_CONFIG": ""}], 60, start_warm=False)
    assert ended.status != 0
    received = error_of(ended.output.splitlines())[1]
    assert received.endswith("waited for a worker that is not visible from here")
    assert set(SHARED.glob("mpich_shm_*")) <= names


def test_ranks_that_have_started_have_no_names_in_memory():
    names = set(SHARED.glob("mpich_shm_*"))
    command = [str(MPIEXEC), "-n", "2", *PROGRAM, "stay", "60"]
    with subprocess.Popen(command, env=os.environ | {"TF_CONFIG": ""}, stdout=subprocess.PIPE) as job:
        try:
            said = b""
            while said.count(b"2 ranks") < 2:
                line = job.stdout.readline()  # type: ignore[union-attr]
                assert line
                said += line
            assert set(SHARED.glob("mpich_shm_*")) <= names  # so none stays if they are killed
        finally:
            job.terminate()


@pytest.fixture
def as_rank(monkeypatch):
    """Make a meeting of rank 0, with what the launcher says of the numbers of ranks."""

    def be(ranks: int, on_this_host: int) -> RankMeeting:
        monkeypatch.setattr(rank_meeting, "launcher_of", lambda: ("PMI_RANK", 0, ranks, on_this_host))
        monkeypatch.setattr(rank_meeting, "_environment", lambda process: {"PMI_RANK": "0"})
        monkeypatch.setattr(rank_meeting, "_launcher", lambda process, variable: 1234567)
        return RankMeeting()

    return be


def test_ranks_of_several_hosts_meet_in_mpi(as_rank, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits"))
    as_rank(ranks=4, on_this_host=2).wait()


def test_ranks_that_cannot_see_each_other_go_on(as_rank, monkeypatch):
    monkeypatch.setattr(rank_meeting, "_LONGEST", 0.2)
    began = time.monotonic()
    as_rank(ranks=2, on_this_host=2).wait()
    assert time.monotonic() - began >= 0.2


def test_a_name_that_is_taken_is_no_reason_to_wait(as_rank, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits"))
    meeting = as_rank(ranks=2, on_this_host=2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(meeting._name(0))
        meeting.wait()


def test_a_rank_whose_arguments_are_refused_has_not_started_mpi(monkeypatch):
    # Its peers wait for it at their start, which has a limit; in MPI_Finalize there would be none.
    monkeypatch.setenv("PMI_SIZE", "3")
    monkeypatch.setattr("tfdistr.jobs.strategies.base.world", lambda: pytest.fail("MPI was started"))
    assert MultiWorkerMirrored(communication="mpi").destination(None).shares == 3

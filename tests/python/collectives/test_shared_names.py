"""Ranks of MPI that are killed as early as can be, and what they leave in /dev/shm: nothing."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clusters import MPIEXEC, PROGRAMS
from launched import SMALL_SERVER, wait_for

from tfdistr.collectives.mpi.init_timeout import job_name
from tfdistr.fork_server import servers
from tfdistr.utils.shared_names import mapped_names

pytestmark = [pytest.mark.timeout(240), pytest.mark.alone]  # others have names in memory, too

SHARED = Path("/dev/shm")
PROGRAM = [sys.executable, str(PROGRAMS / "mpi_start.py"), "stay", "60"]
# How often something is killed when the memory is there, and at a moment by chance within so many seconds.
WHEN_SHARED, ANY_TIME, SECONDS = 2, 2, 0.8


def shared() -> set[Path]:
    return set(SHARED.glob("mpich_*"))


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # UCX makes files of its own there, and removes the name at once: not where it is killed just then.
    monkeypatch.setenv("UCX_POSIX_DIR", str(tmp_path))
    monkeypatch.setattr(servers, "_PYTHON", SMALL_SERVER)
    before = shared()
    yield
    assert wait_for(lambda: shared() <= before, 10), shared() - before  # of other jobs, none for long


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def moments(seed: int) -> Iterator[Callable[[set[Path]], None]]:
    """What waits for the moment at which to kill something, given what was in memory before."""
    for _ in range(WHEN_SHARED):
        yield lambda before: assert_soon(lambda: shared() - before)
    numbers = random.Random(seed)
    for _ in range(ANY_TIME):
        yield lambda before: time.sleep(numbers.uniform(0, SECONDS))


def assert_soon(condition: Callable[[], object]) -> None:
    assert wait_for(condition, 60)


@pytest.mark.parametrize("of_all", [False, True])
def test_nothing_is_left_of_ranks_that_were_started_by_hand(of_all: bool) -> None:
    for moment in moments(of_all):
        before = shared()
        command = [str(MPIEXEC), "-n", "2", *PROGRAM]
        with subprocess.Popen(command, env=os.environ | {"TF_CONFIG": ""}, start_new_session=True) as job:
            try:
                assert_soon(lambda job=job: len(ranks_of(job.pid)) == 2)
                moment(before)
                kill(ranks_of(job.pid)[: 2 if of_all else 1])
                job.wait(60)
            finally:
                job.kill()
        assert wait_for(lambda before=before: shared() <= before, 30)


def ranks_of(mpiexec: int) -> list[int]:
    """The processes that run the program for an mpiexec."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            pid = int(file.parent.name)
            runs_it = file.read_bytes().split(b"\0")[:-1] == list(map(os.fsencode, PROGRAM))
            if runs_it and parent(parent(pid)) == mpiexec:
                found.append(pid)
    return found


def test_a_rank_keeps_its_names_until_it_is_gone_and_other_jobs_theirs() -> None:
    command = [str(MPIEXEC), "-n", "2", *PROGRAM]
    jobs = [subprocess.Popen(command, env=os.environ | {"TF_CONFIG": ""}) for _ in range(2)]
    try:
        of_jobs = []
        for job in jobs:
            assert_soon(lambda job=job: [r for r in ranks_of(job.pid) if mapped_names(r)])
            of_jobs.append(set.union(*map(mapped_names, ranks_of(job.pid))))
        assert of_jobs[0]
        assert not of_jobs[0] & of_jobs[1]
        kill(ranks_of(jobs[0].pid)[:1])
        jobs[0].wait(60)
        assert_soon(lambda: not of_jobs[0] & shared())
        assert of_jobs[1] <= shared()
    finally:
        for job in jobs:
            kill(ranks_of(job.pid))
            job.wait(60)


def test_without_the_process_manager_of_mpich_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PMI_FD", "PMI_HOSTNAME"):
        monkeypatch.delenv(name, raising=False)
    assert job_name() == ""
    with (tmp_path / "file").open("w+b") as file:  # a descriptor of that number that is something else
        monkeypatch.setenv("PMI_FD", str(file.fileno()))
        monkeypatch.setenv("PMI_HOSTNAME", "a")
        assert job_name() == ""
        monkeypatch.delenv("PMI_HOSTNAME")  # Slurm
        assert job_name() == ""
    assert (tmp_path / "file").read_bytes() == b""

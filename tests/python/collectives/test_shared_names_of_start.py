"""Jobs without an MPI launcher that are killed while MPI starts: nothing of them stays in /dev/shm."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launched import CARRIERS, WORKERS, events_in, is_there, processes_of, wait_for
from slow import mostly_slow

from tfdistr.utils.shared_names import mapped_names

pytestmark = pytest.mark.timeout(120)

SHARED = Path("/dev/shm")


class StartingJob:
    """Two workers whose start of MPI stays at a barrier; 0: after the start."""

    def __init__(self, run_dir: Path, carrier: str, barrier: int) -> None:
        run_dir.mkdir(mode=0o700)
        self.run_dir = run_dir
        words = ["parent.py", carrier, "2", run_dir, sys.executable, WORKERS / "mpi_joins.py", barrier]
        command = [sys.executable, WORKERS / words[0], *words[1:]]
        self.launcher = subprocess.Popen(
            list(map(str, command)), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    def pids(self, event: str = "started") -> list[int]:
        found = [each for each in events_in(self.run_dir) if each["event"] == event]
        return [each["pid"] for each in found]

    def names(self) -> set[Path]:
        """The names that it has in memory."""
        assert wait_for(lambda: self.pids("held"), 60)
        folders = {Path(each["folder"]) for each in events_in(self.run_dir) if each["event"] == "held"}
        return {*folders, *(name for pid in self.pids() for name in mapped_names(pid))}

    def kill(self, what: str) -> None:
        rank = self.pids()[-1]
        parent = int(Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill({"launcher": self.launcher.pid, "fork server": parent, "rank": rank}[what], signal.SIGKILL)

    def end(self) -> None:
        self.launcher.kill()
        self.launcher.wait()
        assert wait_for(lambda: not processes_of(self.run_dir), 10)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartingJob]:
    job = StartingJob(tmp_path_factory.mktemp("other") / "run", "processes", 1)
    assert len([name for name in job.names() if name.exists()]) > 1
    yield job
    job.end()


KILLED = pytest.mark.parametrize(
    ("carrier", "what"),
    [(carrier, what) for carrier in CARRIERS for what in ("launcher", "rank")] + [("warm", "fork server")],
)


# Slow: the same code removes the names that are there at the other barriers.
@pytest.mark.parametrize("barrier", mostly_slow([1, 2, 0], quick=[1]))
@KILLED
def test_nothing_is_left_at_a_barrier(
    tmp_path: Path, other: StartingJob, carrier: str, what: str, barrier: int
) -> None:
    of_other = other.names()
    job = StartingJob(tmp_path / "run", carrier, barrier)
    try:
        names = job.names()
        assert len(names) > 1
        job.kill(what)
        assert wait_for(lambda: not [name for name in names if name.exists()], 10)
        assert job.launcher.wait(20) != 0
        assert wait_for(lambda: not any(map(is_there, job.pids())), 5)
        assert not [name for name in names if name.exists()]
    finally:
        job.end()
    assert all(name.exists() for name in of_other)


@pytest.mark.alone  # the names of a start are not known before it
@pytest.mark.slow(reason="kills eight jobs, each at a random moment")
@KILLED
def test_nothing_is_left_at_any_moment(tmp_path: Path, carrier: str, what: str) -> None:
    before, numbers = set(SHARED.iterdir()), random.Random(what)
    for attempt in range(8):
        job = StartingJob(tmp_path / str(attempt), carrier, 0)
        try:
            assert wait_for(lambda job=job: len(job.pids()) == 2, 60)
            time.sleep(numbers.uniform(0, 0.8))
            job.kill(what)
            job.launcher.wait(20)
        finally:
            job.end()
        assert wait_for(lambda: set(SHARED.iterdir()) <= before, 30)  # of other jobs, none for long

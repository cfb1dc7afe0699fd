"""A /dev/shm that is too small for MPI, full or read-only."""

import os
import subprocess
import sys

import pytest
from clusters import MPIEXEC, PROGRAMS

ALONE = ["unshare", "--mount"]

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        subprocess.run([*ALONE, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True).returncode
        != 0,
        reason="no file system can be mounted here",
    ),
]
TOO_SMALL = "its /dev/shm has 2,097,152 bytes free, and MPI needs 2,621,440 for 2 ranks"
READ_ONLY = "it cannot write to /dev/shm (Read-only file system)"


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ALONE, *command], capture_output=True, text=True, env=os.environ | {"TF_CONFIG": ""}, timeout=100
    )


def train(options: str, asked: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, str(PROGRAMS / "small_memory.py"), options, asked])


@pytest.mark.parametrize(("options", "why"), [("size=2m", TOO_SMALL), ("ro", READ_ONLY)])
def test_auto_takes_the_ring_and_says_why(options: str, why: str) -> None:
    ended = train(options, "auto")
    assert ended.returncode == 0, ended.stderr
    assert "used: ring" in ended.stdout
    [line] = [line for line in ended.stderr.splitlines() if "exchanged with the ring" in line]
    assert f"because MPI is not available: worker 0: {why}." in line


def test_mpi_is_refused() -> None:
    ended = train("size=2m", "mpi")
    assert ended.returncode != 0
    assert f"Received: worker 0: worker 0: {TOO_SMALL}\nFix: Make room in /dev/shm" in ended.stderr


def test_the_room_that_is_asked_for_is_enough() -> None:
    ended = train("size=2560k", "mpi")
    assert "used: mpi" in ended.stdout, ended.stderr


def test_ranks_of_mpiexec_name_it() -> None:
    mount = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
    rank = [sys.executable, str(PROGRAMS / "mpi_start.py"), "come", "20"]
    ended = run(["sh", "-c", mount, "sh", str(MPIEXEC), "-n", "2", *rank])
    assert ended.returncode != 0
    said = ended.stdout + ended.stderr
    assert "MPI cannot share memory between the ranks of a host." in said
    assert "its /dev/shm has 1,048,576 bytes free, and MPI needs 2,621,440 for 2 ranks" in said
    assert "Fix: Make room in /dev/shm" in said

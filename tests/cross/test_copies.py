"""A large array of R is copied once on its way: where it is read, or into the file of the workers.

Memory is counted, not time: programs/copies.R says how much more a session needs at most, in units of the
array's size.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="no count of memory here"),
]
PROGRAM = Path(__file__).parent / "programs" / "copies.R"
NOISE = 0.4  # of the size of the array: what else a session needs


def counted(what: str, kind: str, folder: Path) -> dict[str, float]:
    rscript = shutil.which("Rscript")
    assert rscript
    ended = subprocess.run(
        [rscript, "--no-init-file", str(PROGRAM), what, kind, str(folder)],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "RETICULATE_PYTHON": str(Path(sys.executable).absolute())},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found


def slow_but(kinds: list[str], quick: str) -> list[object]:
    return [pytest.param(kind, marks=() if kind == quick else pytest.mark.slow) for kind in kinds]


@pytest.mark.parametrize("kind", slow_but(["double", "integer", "vector"], quick="double"))
def test_a_process_that_reads_an_array_copies_it_once(kind, tmp_path):
    found = counted("read", kind, tmp_path)
    assert 1 - NOISE < found["here"] < 1 + NOISE


@pytest.mark.slow
def test_an_array_of_numpy_is_not_copied_again(tmp_path):
    assert counted("read", "float32", tmp_path)["here"] < NOISE
    found = counted("write", "float32", tmp_path)
    assert found["here"] < NOISE
    assert 1 <= found["written"] < 1.01


@pytest.mark.parametrize("kind", slow_but(["double", "integer"], quick="double"))
def test_the_file_of_the_workers_is_the_only_copy(kind, tmp_path):
    found = counted("write", kind, tmp_path)
    assert found["here"] < NOISE
    assert 1 <= found["written"] < 1.01


@pytest.mark.slow
def test_a_job_in_this_process_copies_its_data_once(tmp_path):
    found = counted("here", "double", tmp_path)
    assert 1 - NOISE < found["here"] < 1 + NOISE


@pytest.mark.slow
def test_a_job_on_workers_copies_its_data_once(tmp_path):
    found = counted("workers", "double", tmp_path)
    assert found["here"] < NOISE
    assert 1 <= found["written"] < 1.05  # the targets are in it, too
    assert found["worker"] < NOISE

"""A large array of R is copied once on its way: where it is read, or into the file of the workers.

Memory is counted, not time: programs/copies.R says how much more a session needs at most, in units of the
array's size.
"""

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
Counted = dict[tuple[str, str], dict[str, float]]
NOISE = 0.4  # of the size of the array: what else a session needs


@pytest.fixture(scope="module")
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Counted:
    """What one session of R has measured: all that these tests ask for."""
    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    asked = [params["measured"] for params in chosen if "measured" in params]
    rscript = shutil.which("Rscript")
    assert rscript
    ended = subprocess.run(
        [rscript, "--no-init-file", str(PROGRAM), str(tmp_path_factory.mktemp("copies")), *sum(asked, ())],
        capture_output=True, text=True, timeout=500, check=False,
        env={**os.environ, "RETICULATE_PYTHON": str(Path(sys.executable).absolute())},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    return dict(zip(asked, found, strict=True))


def each(what: str, *kinds: str, quick: str = "") -> pytest.MarkDecorator:
    """The parameter ``measured``: what is done with an array, and its kind."""
    slow = pytest.mark.slow(reason="allocates large arrays of each kind")
    made = [pytest.param((what, kind), id=kind, marks=() if kind == quick else slow) for kind in kinds]
    return pytest.mark.parametrize("measured", made)


@each("read", "double", "integer", "vector", quick="double")
def test_a_process_that_reads_an_array_copies_it_once(counted, measured):
    assert 1 - NOISE < counted[measured]["here"] < 1 + NOISE


@each("read", "float32")
def test_an_array_of_numpy_is_not_copied_again(counted, measured):
    assert counted[measured]["here"] < NOISE


@each("write", "double", "integer", "float32", quick="double")
def test_the_file_of_the_workers_is_the_only_copy(counted, measured):
    found = counted[measured]
    assert found["here"] < NOISE
    assert 1 <= found["written"] < 1.01

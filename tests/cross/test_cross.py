"""R and Python in one process, through rpy2 and reticulate. Each program has a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize(
    ("program", "last_line"),
    [("objects.py", "same objects"), ("errors.py", "same errors"), ("same_weights.py", "same weights")],
)
def test_both_languages_agree(program: str, last_line: str, tmp_path: Path) -> None:
    # By absolute path: embedded in a static Python, R could not load its modules otherwise.
    ended = subprocess.run(
        [str(Path(sys.executable).absolute()), str(PROGRAMS / program), str(tmp_path)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    assert ended.stdout.splitlines()[-1] == last_line

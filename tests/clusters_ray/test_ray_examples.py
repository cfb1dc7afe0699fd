"""The example for users of Ray Tune, run as a user runs it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ray_nodes import Ray

pytestmark = pytest.mark.timeout(280)
EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str, cwd: Path) -> str:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments], cwd=cwd, capture_output=True, text=True,
        timeout=250,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow(reason="starts Ray, and trains several models")
def test_ray_tune(with_pandas: None, ray: Ray, tmp_path: Path) -> None:
    said = run("ray_tune.py", ray.address, cwd=tmp_path)
    found = re.search(r"Best: rate 0\.1, loss ([\d.]+), 2 workers", said)
    assert found is not None, said
    assert float(found[1]) < 1

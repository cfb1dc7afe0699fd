"""The example for users of Ray Tune, run as a user runs it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ray_nodes import Ray

pytestmark = pytest.mark.timeout(280)
EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_tune.py"


@pytest.mark.slow(reason="starts Ray, and trains several models")
def test_ray_tune(with_pandas: None, ray: Ray, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE), ray.address], cwd=tmp_path, capture_output=True, text=True, timeout=250
    )
    assert ended.returncode == 0, ended.stderr
    found = re.search(r"Best: rate 0\.1, loss ([\d.]+), 2 workers", ended.stdout)
    assert found is not None, ended.stdout
    assert float(found[1]) < 1

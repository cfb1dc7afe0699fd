"""The environment of the processes that tests start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Keras imports pandas and matplotlib where they are installed: a quarter of the time in which a process
# imports TensorFlow and Keras. Tests start a thousand processes, and all but a few need neither.
WITHOUT = str(Path(__file__).parent / "without")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [WITHOUT, os.environ.get("PYTHONPATH")]))


@pytest.fixture(scope="module")
def with_pandas() -> Iterator[None]:
    """The processes that a module starts have pandas and matplotlib."""
    paths = os.environ["PYTHONPATH"].split(os.pathsep)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path != WITHOUT))
        yield

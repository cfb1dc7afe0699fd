"""The environment of the processes that tests start, and what these leave when they are killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import leftovers

leftovers.own_everything()

# Keras imports pandas and matplotlib where they are installed; python -X importtime -c 'import keras' shows
# for how long. Tests start many processes, and all but a few need neither.
WITHOUT = str(Path(__file__).parent / "without")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [WITHOUT, os.environ.get("PYTHONPATH")]))


@pytest.fixture(scope="module")
def with_pandas() -> Iterator[None]:
    """The processes that a module starts have pandas and matplotlib."""
    paths = os.environ["PYTHONPATH"].split(os.pathsep)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path != WITHOUT))
        yield


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """The tests of a file leave nothing on this machine but the fork servers of their session."""
    before = leftovers.Present()
    yield
    left = leftovers.left_since(before)
    assert not left, "These tests have left:\n" + "\n".join(left)


@pytest.fixture(scope="session", autouse=True)
def _what_a_killed_mpiexec_leaves() -> Iterator[None]:
    """MPICH's launcher describes the machine in a file whose folder is always /tmp."""

    def files() -> set[Path]:
        return set(Path("/tmp").glob("hydra_hwloc_xmlfile_*"))

    before = files()
    yield
    for file in files() - before:
        file.unlink(missing_ok=True)

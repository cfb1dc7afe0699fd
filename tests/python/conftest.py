"""Fixtures of several tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "helpers"))
from clusters import Processes
from disks import Disk, small_disk_at
from launched import SMALL_SERVER

from tfdistr.fork_server import servers


@pytest.fixture
def processes() -> Iterator[Processes]:
    """What starts processes, which are ended with the test."""
    with Processes() as started:
        yield started


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Disk]:
    """A file system of 1 MB."""
    with small_disk_at(tmp_path / "disk", "1m") as disk:
        yield disk


@pytest.fixture
def _small_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The fork servers of this session import nothing, as the workers of a test need nothing."""
    monkeypatch.setattr(servers, "_PYTHON", SMALL_SERVER)
    yield
    for kind in [kind for kind in servers._servers._present if kind.command[1:] == SMALL_SERVER]:
        servers._servers._end_soon(kind)

"""Four hosts, and a job on them that leaves nothing there."""

import sys
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
from ssh_job import Job


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hosts.Hosts]:
    """Hosts a, b, c and d, of which c does not see ``net.own`` and d no Python of this environment."""
    reason = hosts.missing()
    if reason:
        pytest.skip(f"no hosts to test with: {reason}")
    own = tmp_path_factory.mktemp("own")
    hidden = {"c": own, "d": Path(sys.executable).parent}
    with hosts.hosts("abcd", tmp_path_factory.mktemp("hosts"), hidden) as made:
        made.own = own
        yield made


@pytest.fixture
def job(net: hosts.Hosts, tmp_path: Path) -> Iterator[Job]:
    job = Job(net, tmp_path / "run")
    yield job
    assert job.left() == []


@pytest.fixture
def apart(net: hosts.Hosts) -> Iterator[None]:
    """The hosts a and b do not reach each other."""
    for name in "ab":
        net.isolate(name)
    yield
    for name in "ab":
        net.isolate(name, False)

"""Two hosts, and a Slurm, for the tests that start workers there; without them, the tests are skipped."""

from __future__ import annotations

from collections.abc import Iterator

import hosts
import pytest
import slurm_lab


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hosts.Hosts]:
    """Hosts a and b."""
    reason = hosts.missing()
    if reason:
        pytest.skip(f"no hosts to test with: {reason}")
    with hosts.hosts("ab", tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture(scope="module")
def lab() -> Iterator[slurm_lab.Lab]:
    """A Slurm with three nodes."""
    reason = slurm_lab.missing()
    if reason:
        pytest.skip(f"no Slurm to test with: {reason}")
    with slurm_lab.lab() as made:
        yield made

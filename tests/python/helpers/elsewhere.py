"""Hosts, a Slurm and Ray for the tests that start workers there; else the tests are skipped."""

import shutil
import tempfile
from collections.abc import Iterator

import hosts
import pytest
import slurm_lab
from ray_nodes import CPUS, Ray


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


@pytest.fixture(scope="module")
def ray(_nothing_is_left: None) -> Iterator[Ray]:
    """A Ray cluster of three nodes."""
    pytest.importorskip("ray", reason="Ray is not installed here: make test-ray has it")
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")  # the paths of Ray's sockets are long
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": CPUS, "include_dashboard": False})
        try:
            yield Ray(cluster)
        finally:
            cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)

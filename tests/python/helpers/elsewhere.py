"""Hosts, a Slurm, a Kubernetes and Ray for the tests that start workers there; else the tests are skipped."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hosts
import kubectl
import netns
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


@dataclass(frozen=True)
class Kubernetes:
    """A Kubernetes whose `kubectl` is on the PATH of ``env``; ``folder`` has its objects."""

    folder: Path
    env: dict[str, str]


@pytest.fixture
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Kubernetes:
    """A Kubernetes for one Job."""
    reason = netns.missing()
    if reason:
        pytest.skip(f"no pods to test with: {reason}")
    folder = tmp_path_factory.mktemp("kubernetes")
    program = folder / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {kubectl.__file__} "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return Kubernetes(folder, {"PATH": path, "KUBECTL_FOLDER": str(folder)})


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

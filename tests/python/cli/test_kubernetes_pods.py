"""The commands of the manifests, each in a network namespace of its own; tests/engines has scripts of R."""

import json
from pathlib import Path

import pytest
from netns import missing
from pods import pods
from scripts import train

from tfdistr.cli.kubernetes.manifests import kubernetes_manifests

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(missing() is not None, reason=str(missing()))]


def test_a_pod_whose_peer_never_starts_names_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(train("strategy=tfdistr.multi_worker_mirrored(start_timeout=3)"))
    with pods(kubernetes_manifests(str(script), 2), tmp_path) as made:
        process = made.start(0)
        said, _ = process.communicate(timeout=100)
        assert process.returncode == 1, said
        report = json.loads(made.message(0).read_text())
    assert report["error_type"] == "ClusterStartError"
    assert "train-1.train:2222" in report["message"]

"""The commands of the manifests, each in a network namespace of its own; tests/clusters has scripts of R."""

import base64
import hashlib
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


def test_a_secret_reaches_the_pods_and_is_in_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "s3cret$(HOME)")
    monkeypatch.delenv("TFDISTR_TOKEN", raising=False)
    script = tmp_path / "train.py"
    script.write_text(
        "import hashlib, os\n"
        "for name in ('WANDB_API_KEY', 'TFDISTR_TOKEN'):\n"
        "    print(name, hashlib.sha256(os.environ[name].encode()).hexdigest())\n"
        "raise ValueError(name)\n"
    )
    manifests = kubernetes_manifests(str(script), 2, secret_env=["WANDB_API_KEY"])
    secrets = {name: base64.b64decode(value).decode() for name, value in manifests[1]["data"].items()}
    assert secrets["WANDB_API_KEY"] == "s3cret$(HOME)"
    with pods(manifests, tmp_path) as made:
        process = made.start(0)
        said, _ = process.communicate(timeout=100)
        report = made.message(0).read_text()
    assert json.loads(report)["message"] == "TFDISTR_TOKEN"
    for name, value in secrets.items():
        assert f"{name} {hashlib.sha256(value.encode()).hexdigest()}\n" in said
        assert value not in said + report + json.dumps(manifests[-1])

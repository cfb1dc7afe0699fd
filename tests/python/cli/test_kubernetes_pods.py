"""The commands of the manifests, each in a network namespace of its own; tests/engines has scripts of R."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from netns import missing
from pods import pods
from scripts import losses, train

from tfdistr.cli.kubernetes.manifests import kubernetes_manifests

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(missing() is not None, reason=str(missing()))]


def test_a_pod_whose_peer_never_starts_names_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(train("start_timeout=3"))
    with pods(kubernetes_manifests(str(script), 2), tmp_path) as made:
        process = made.start(0)
        said, _ = process.communicate(timeout=100)
        assert process.returncode == 1, said
        report = json.loads(made.message(0).read_text())
    assert report["error_type"] == "ClusterStartError"
    assert "train-1.train:2222" in report["message"]


@pytest.mark.slow(reason="TensorFlow in the network namespace of each pod, three times")
def test_pods_that_are_told_to_end_save_a_checkpoint_and_go_on_there(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    options = "start_timeout=60, epochs=6, resume=True, checkpoint_every='epoch', callbacks=slow"
    slow = """
class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if tfdistr.worker_index() == 0:
            print("step", flush=True)
        time.sleep(float(os.environ.get("PAUSE", "0")))

def slow():
    return [Slow()]
"""
    script.write_text("import os, time, keras, tfdistr\n" + slow + train(options))
    settings: dict[str, Any] = {"volume": "claim", "run_dir": "digits"}
    said = {}
    for name, env in (("whole", {}), ("told", {"PAUSE": "0.2"}), ("again", {})):
        if name == "told":
            (tmp_path / "volume").rename(tmp_path / "volume-of-whole")
        with pods(kubernetes_manifests(str(script), 2, env=env, **settings), tmp_path) as made:
            started = [made.start(index) for index in range(2)]
            if name == "told":
                assert started[0].stdout is not None
                steps = 0
                while steps < 9:
                    steps += "step" in started[0].stdout.readline()
                started[1].send_signal(signal.SIGTERM)
            said[name] = [process.communicate(timeout=150)[0] for process in started]
            codes = [process.returncode for process in started]
            assert codes == ([75, 75] if name == "told" else [0, 0]), said[name]
    assert losses(said["again"][0]) == losses(said["whole"][0])

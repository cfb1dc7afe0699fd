"""The commands of the manifests, each in a network namespace of its own."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from pods import missing, pods

from tfdistr.script.kubernetes.manifests import kubernetes_manifests

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(missing() is not None, reason=str(missing()))]

TRAIN = """
import sys
import tfdistr

def model():
    import keras
    made = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, "softmax")])
    made.compile("sgd", "sparse_categorical_crossentropy")
    return made

fit = tfdistr.distributed_fit(
    model, tfdistr.load_dataset("digits", "test"), batch_size=60, epochs=2, seed=1, verbose=0,
    start_timeout=60,
)
print("loss", *fit.history["loss"], fit.params["workers"], fit.params["communication"], sys.argv[1:])
"""


def losses(said: str) -> list[float]:
    found = re.search(r"^loss (\S+) (\S+)", said, re.MULTILINE)
    assert found, said
    return [float(each) for each in found.groups()]


def test_pods_train_as_one_worker_though_they_start_at_different_times(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    said = {}
    for workers in (1, 2):
        manifests = kubernetes_manifests(str(script), workers, arguments=["a$(HOME) b"])
        with pods(manifests, tmp_path) as made:
            started = []
            for index in range(workers):
                started.append(made.start(index))
                time.sleep(2)  # the first waits for the name of the next
            said[workers] = [process.communicate(timeout=100)[0] for process in started]
            assert [process.returncode for process in started] == [0] * workers, said
    alone = losses(said[1][0])
    for each in said[2]:
        assert losses(each) == pytest.approx(alone, rel=1e-6)
        assert "2 ring ['a$(HOME) b']" in each


def test_an_error_of_the_model_counts_once_and_is_the_message(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    breaks = "    if tfdistr.worker_index() == 1: raise ValueError('this model is broken')\n"
    script.write_text(TRAIN.replace("    import keras\n", f"    import keras\n{breaks}"))
    with pods(kubernetes_manifests(str(script), 2), tmp_path) as made:
        started = [made.start(index) for index in range(2)]
        said = [process.communicate(timeout=100)[0] for process in started]
        assert [process.returncode for process in started] == [76, 1], said
        report = json.loads(made.message(1).read_text())
    assert (report["error_type"], report["message"]) == ("ValueError", "this model is broken")

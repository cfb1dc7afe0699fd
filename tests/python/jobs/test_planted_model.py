"""A description of another model in the place of a run: the caller's model is the one that is used."""

import json
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import stores
from resumed import X, train

from tfdistr.checkpoint.object_store import Store
from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.jobs import restarts

URL = "memory://bucket/run"


def model() -> keras.Model:
    hidden, last = keras.layers.Dense(8, "relu"), keras.layers.Dense(2, "softmax")
    made = keras.Sequential([keras.Input((4,)), hidden, last])
    made.compile("adam", "sparse_categorical_crossentropy")
    return made


def another_activation(marker: Path) -> str:
    """The description of a model with weights of the same shapes."""
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(2)])
    other.compile("adam", "sparse_categorical_crossentropy")
    return json.dumps(keras.saving.serialize_keras_object(other))


def shell_command(marker: Path) -> str:
    """A description that runs a command with Keras 3.8."""
    described: dict[str, Any] = keras.saving.serialize_keras_object(keras.Model(x := keras.Input((4,)), x))
    function = {"module": "os", "class_name": "function", "config": "system", "registered_name": "system"}
    described["config"]["layers"].append({
        "module": "keras.layers", "class_name": "Lambda", "registered_name": None, "name": "z",
        "config": {"name": "z", "function": function, "arguments": {}},
        "inbound_nodes": [{"args": [], "kwargs": {"inputs": f"touch {marker}"}}],
    })  # fmt: skip
    return json.dumps(described)


@pytest.mark.parametrize("planted", [another_activation, shell_command])
@pytest.mark.parametrize("store", [True, False], ids=["store", "folder"])
def test_a_resumed_run_has_the_model_of_the_caller(tmp_path, monkeypatch, store, planted):
    marker, place = tmp_path / "marker", URL if store else tmp_path / "run"
    monkeypatch.setattr(restarts, "run_workers", None)  # the run is complete
    with stores.memory():
        fit = train(URL, model, epochs=1)
        if not store:
            place.mkdir(mode=0o700)
            for name in ("run.json", "model.npz", "training.json", "result.json"):
                (there,) = [found for found in Store(URL).names() if found.endswith(f"/{name}")]
                assert Store(URL).download(there, place / name)
                os.chmod(place / name, 0o600)
            (place / "description.json").write_text(planted(marker))
        (described,) = [name for name in Store(URL).names() if name.endswith("/run.json")]
        for folder in ("", described.removesuffix("run.json")):
            Store(URL).write(f"{folder}description.json", planted(marker).encode())
        again = train(place, model, epochs=1, cluster=local_cluster(1), resume=True)
        np.testing.assert_array_equal(again.model.predict(X, verbose=0), fit.model.predict(X, verbose=0))
        assert not marker.exists()

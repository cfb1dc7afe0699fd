"""The chief of parameter servers that were started by hand, with TF_CONFIG: ps_by_hand.py OUTPUT [EPOCHS]."""

import json
import os
import sys
from typing import Any

import keras
import numpy as np

from tfdistr.rendezvous.config import cluster_from_env
from tfdistr.training.job_arguments import make_job

rng = np.random.default_rng(0)
X = rng.normal(size=(101, 8)).astype("float32")
Y = (X[:, :4].sum(1) > 0).astype("int32")
ARGUMENTS = {"epochs": 3, "batch_size": 32, "seed": 1, "class_weight": {0: 1.0, 1: 3.0}}


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return made


if __name__ == "__main__":
    from tfdistr.parameter_servers.coordinator import train_on_servers

    config = cluster_from_env()
    assert config is not None
    arguments = ARGUMENTS | {"epochs": int(sys.argv[2])} if len(sys.argv) > 2 else ARGUMENTS
    how = {"strategy": "parameter_server", "options": {"update": "sync"}}
    job = make_job(model, X, Y, num_workers=config.num_workers, **how, **arguments)
    kinds: list[str] = []

    def on_event(kind: str, **fields: Any) -> None:
        kinds.append(kind)
        print(kind, flush=True)

    trained = train_on_servers(job, config, on_event)
    # The servers are gone: the model is one of this process.
    predicted = trained.model.predict(X[:5], verbose=0)
    trained.model.save(f"{sys.argv[1]}/model.keras")
    weights = {f"weight_{i}": weight for i, weight in enumerate(trained.model.get_weights())}
    np.savez(f"{sys.argv[1]}/result.npz", predicted=predicted, **weights)
    with open(f"{sys.argv[1]}/result.json", "w") as file:
        json.dump({"history": trained.history, "report": trained.report, "kinds": kinds}, file)
    sys.stdout.flush()
    os._exit(0)

"""An engine of one's own is one class: jobs train on it, and its lost workers are errors or replaced."""

import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from subprocess_cluster import subprocess_cluster

import tfdistr

pytestmark = pytest.mark.timeout(240)

X = np.linspace(-1, 1, 96, dtype="float32").reshape(24, 4)


def model() -> keras.Model:
    keras.utils.set_random_seed(7)
    made = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    made.compile(keras.optimizers.SGD(0.1), "mse")
    return made


def fit(**arguments: Any) -> tfdistr.FitResult:
    return tfdistr.distributed_fit(
        model, X, X.sum(1), batch_size=6, epochs=2, seed=3, verbose=0, virtual_workers=3, **arguments
    )


def kill_once(flag: Path) -> Any:
    def callbacks() -> list[keras.callbacks.Callback]:
        def kill(epoch: int, logs: Any) -> None:
            if epoch == 1 and tfdistr.worker_index() == 1 and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        return [keras.callbacks.LambdaCallback(on_epoch_begin=kill)]

    return callbacks


def test_a_job_has_the_result_of_one_worker_also_after_a_lost_worker(tmp_path: Path) -> None:
    one = fit(cluster=tfdistr.local_cluster(1))
    lost = fit(
        cluster=subprocess_cluster(3), callbacks=kill_once(tmp_path / "killed"), checkpoint_every="epoch",
        failures=tfdistr.on_failure(min_workers=2),
    )  # fmt: skip
    assert (tmp_path / "killed").exists()
    assert lost.history == one.history
    for a, b in zip(one.model.get_weights(), lost.model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert lost.params["workers"] == 2

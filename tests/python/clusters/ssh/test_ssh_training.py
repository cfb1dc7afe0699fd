"""Training on workers that ssh starts: as one worker, through tunnels, a cut link; more: tests/clusters."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ssh_job import Job

import tfdistr

pytestmark = pytest.mark.timeout(240)


def model() -> Any:
    import keras

    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, "softmax")])
    model.compile(keras.optimizers.SGD(0.001, momentum=0.9), "sparse_categorical_crossentropy")
    return model


@pytest.mark.slow(reason="TensorFlow in network namespaces")
@pytest.mark.usefixtures("apart")
def test_distributed_fit_through_tunnels_gives_the_numbers_of_one_worker(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, many = (
        tfdistr.distributed_fit(
            model, tfdistr.load_dataset("digits"), batch_size=64, steps_per_epoch=22, epochs=2, seed=1,
            verbose=0, cluster=cluster,
        )
        for cluster in (None, job.cluster("ab", tunnels=True))
    )  # fmt: skip
    assert not job.net.fork_servers()  # the workers were cold
    for received, expected in zip(many.model.get_weights(), one.model.get_weights(), strict=True):
        np.testing.assert_allclose(received, expected, atol=1e-6)

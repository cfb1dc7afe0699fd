"""Training on workers that ssh starts: as one worker, through tunnels, a cut link; more: tests/clusters."""

from collections.abc import Callable
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


def fit(build: Callable[[], Any], cluster: Any, **options: Any) -> tfdistr.FitResult:
    digits = tfdistr.load_dataset("digits")
    return tfdistr.distributed_fit(
        build, digits, cluster=cluster,
        **{"batch_size": 64, "steps_per_epoch": 22, "epochs": 2, "seed": 1, "verbose": 0, **options},
    )


@pytest.fixture(scope="module")
def one() -> tfdistr.FitResult:
    """What one worker gives."""
    return fit(model, None)


@pytest.mark.slow(reason="TensorFlow in network namespaces")
@pytest.mark.usefixtures("apart")
def test_distributed_fit_through_tunnels_gives_the_numbers_of_one_worker(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: tfdistr.FitResult
) -> None:
    monkeypatch.chdir(tmp_path)
    many = fit(model, job.cluster("ab", tunnels=True))
    assert not job.net.fork_servers()  # the workers were cold
    for received, expected in zip(many.model.get_weights(), one.model.get_weights(), strict=True):
        np.testing.assert_allclose(received, expected, atol=1e-6)

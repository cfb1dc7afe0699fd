"""Workers that share a GPU of NVIDIA: this test needs one."""

from typing import Any

import numpy as np
import pytest

import tfdistr
from tfdistr.utils.gpus import visible_gpus

pytestmark = [
    pytest.mark.skipif(not visible_gpus({}), reason="needs a GPU of NVIDIA"),
    pytest.mark.timeout(240),
]

X = np.random.default_rng(0).normal(size=(200, 8)).astype("float32")
Y = (X[:, :4].sum(1) > 0).astype("int32")


def model() -> Any:
    import keras

    net = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2)])
    net.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return net


def on_gpu() -> list[Any]:
    """A callback that fails where the weights are not on a GPU."""
    import keras

    class Check(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            assert all("GPU" in weight.value.device for weight in self.model.weights)

    return [Check()]


def fit(cluster: Any) -> tfdistr.FitResult:
    return tfdistr.distributed_fit(
        model, X, Y, batch_size=50, epochs=2, seed=3, verbose=0, cluster=cluster, callbacks=on_gpu
    )


def test_two_workers_share_a_gpu() -> None:
    one = fit(tfdistr.local_cluster(gpus_per_worker=1))
    two = fit(tfdistr.local_cluster(2))
    assert two.params["communication"] == "ring"
    for a, b in zip(one.model.get_weights(), two.model.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)  # a GPU multiplies with 10 bits of each float

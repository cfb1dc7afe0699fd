"""Jobs of distributed_fit() in actors of Ray: the numbers of one process, also after the loss of a node."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launched import processes_of, wait_for
from ray_nodes import Ray

import tfdistr

pytestmark = pytest.mark.timeout(280)


def model() -> Any:
    import keras

    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.Input((12,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
    made.compile(keras.optimizers.SGD(0.05), "mse")
    return made


def train(**options: Any) -> tfdistr.FitResult:
    x = np.random.default_rng(0).normal(size=(101, 12)).astype("float32")
    y = x[:, :1] * 2 - x[:, 1:2]
    return tfdistr.distributed_fit(
        model, x, y, batch_size=16, seed=3, **{"epochs": 2, "verbose": 0, **options}
    )


def difference(one: tfdistr.FitResult, other: tfdistr.FitResult) -> float:
    pairs = zip(one.model.get_weights(), other.model.get_weights(), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


@pytest.mark.slow(reason="Ray starts processes that import TensorFlow")
def test_a_job_goes_on_when_a_node_is_lost(ray: Ray, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    lost: list[int] = []

    def losing() -> Any:
        import keras

        class Slow(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):  # no names in annotations: it travels
                time.sleep(0.5)

        return [Slow()]

    def lose_after_first_checkpoint() -> None:
        def saved() -> bool:
            events = run_dir / "workers" / "0" / "events.jsonl"
            return events.exists() and '"checkpoint"' in events.read_text()

        if wait_for(saved, 200):
            lost.append(1)
            ray.lose(1)

    thread = threading.Thread(target=lose_after_first_checkpoint)
    thread.start()
    try:
        fit = train(
            cluster=tfdistr.ray_cluster(3, address=ray.address), run_dir=run_dir, epochs=16,
            checkpoint_every="epoch", failures=tfdistr.on_failure(max_restarts=1), callbacks=losing,
        )  # fmt: skip
    finally:
        thread.join()
        ray.others.append(ray.add())
    assert lost
    assert len(fit.history["loss"]) == 16
    assert list((run_dir / "logs").glob("worker-0.log.failed-1"))
    assert difference(fit, train(epochs=16)) < 1e-6


@pytest.mark.slow(reason="Ray starts processes that import TensorFlow")
def test_a_ray_of_its_own_ends_with_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed here: make test-ray has it")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    fit = train(cluster=tfdistr.ray_cluster(2), run_dir=tmp_path / "run")
    assert difference(fit, train()) < 1e-6
    assert not wait_for(lambda: processes_of(tmp_path / "run"), 0.5)

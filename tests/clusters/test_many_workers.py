"""Sixteen and 32 small workers on this machine equal one worker; a killed one of 32 is named, and all end."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import tfdistr

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow(reason="starts 32 workers"), pytest.mark.alone]

X = np.random.default_rng(0).normal(size=(256, 8)).astype("float32")
Y = (X[:, 0] > 0).astype("int64")


def model():
    import keras

    made = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(2, "softmax")])
    made.compile("sgd", "sparse_categorical_crossentropy")
    return made


def job(workers: int, communication: str, **options):
    return tfdistr.distributed_fit(
        model, X, Y, batch_size=128, epochs=3, seed=1, verbose=0,
        strategy=tfdistr.multi_worker_mirrored(communication=communication),
        cluster=tfdistr.local_cluster(workers) if workers else None, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def alone():
    return job(0, "auto")


@pytest.mark.parametrize("communication", ["mpi", "ring"])
@pytest.mark.parametrize("workers", [16, 32])
def test_many_workers_give_the_numbers_of_one(workers, communication, alone):
    fit = job(workers, communication)
    assert len(fit.workers) == workers
    assert {worker["status"] for worker in fit.workers} == {"done"}
    for mine, others in zip(fit.model.get_weights(), alone.model.get_weights(), strict=True):
        np.testing.assert_allclose(mine, others, atol=1e-6)
    for name, values in alone.history.items():
        np.testing.assert_allclose(fit.history[name], values, atol=1e-6)


@pytest.mark.parametrize("communication", ["mpi", "ring"])
def test_one_of_many_workers_is_killed(communication):
    workers, victim = 32, 29

    def callbacks():
        import keras

        def begin(epoch, logs):
            if tfdistr.worker_index() == victim and epoch == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        return [keras.callbacks.LambdaCallback(on_epoch_begin=begin)]

    with pytest.raises(tfdistr.WorkerFailedError) as caught:
        job(workers, communication, callbacks=callbacks)
    assert f"Worker {victim} of {workers} on " in str(caught.value)
    assert "was killed by SIGKILL" in str(caught.value)
    assert caught.value.worker == victim
    assert all(not Path(f"/proc/{status.pid}").exists() for status in caught.value.workers)

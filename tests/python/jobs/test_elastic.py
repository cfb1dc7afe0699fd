"""Jobs that lose workers, take others in their place, and end with the bits of an undisturbed run.

`make soak` changes the number of workers, too.
"""

import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfdistr
from tfdistr.clusters.local.cluster import describe_local_cluster
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.run import run_fit

pytestmark = pytest.mark.timeout(300)

rng = np.random.default_rng(0)
X = rng.normal(size=(96, 8)).astype("float32")
Y = (X[:, :4].sum(1) > 0).astype("int32")


def model() -> keras.Model:
    network = keras.Sequential([
        keras.layers.Dense(16, "relu"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.3),
        keras.layers.Dense(2),
    ])  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return network


class DiesOnce(keras.callbacks.Callback):
    """Kills the last of three workers in the second epoch, once in a run."""

    remembers = False

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark
        self.epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        last = self.model.distribute_strategy.worker_index == 2
        if last and (self.epoch, batch) == (1, 1) and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def job(workers: Any, epochs: int = 4, **arguments: Any) -> tfdistr.FitResult:
    return tfdistr.distributed_fit(
        model, X, Y, cluster=tfdistr.local_cluster(workers), batch_size=32, epochs=epochs, seed=1, verbose=0,
        virtual_workers=4, **arguments,
    )  # fmt: skip


def weights(fit: tfdistr.FitResult) -> bytes:
    return b"".join(np.asarray(weight).tobytes() for weight in fit.model.get_weights())


@pytest.mark.slow(reason="starts workers three times")
def test_a_job_goes_on_without_a_lost_worker_and_takes_one_back(tmp_path):
    events: list[dict[str, Any]] = []
    fit = run_fit(
        Caller(events.append), model=model, x=X, y=Y,
        cluster=tfdistr.local_cluster((2, 3)), failures=None,
        run_dir=None, checkpoint_every=None, resume=False,
        strategy=tfdistr.multi_worker_mirrored(communication="ring"), batch_size=32, epochs=4, seed=1,
        virtual_workers=4, callbacks=lambda: [DiesOnce(tmp_path / "died")],
    )  # fmt: skip
    said = [event["message"] for event in events if event["event"] == "warning"]
    assert any("continues without worker 2" in message and "2 of its workers" in message for message in said)
    assert any("Workers are available again: the job continues with 3 workers" in message for message in said)
    assert len(fit.workers) == 3
    plain = job(1)
    assert weights(fit) == weights(plain)
    assert fit.history == plain.history


def test_a_number_that_may_change_needs_virtual_workers():
    with pytest.raises(tfdistr.ArgumentError, match=r"needs `virtual_workers`(.|\n)*from 2 to 3 workers"):
        tfdistr.distributed_fit(model, X, Y, cluster=describe_local_cluster((2, 3)), verbose=0)

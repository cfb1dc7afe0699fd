"""Where the time went, in real trainings: a slow part is large, and only it."""

from __future__ import annotations

import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from resumed import OwnLoop

import tfdistr
from tfdistr.training.step_times import PARTS

pytestmark = pytest.mark.timeout(200)

STEPS, EPOCHS = 10, 3
#: Seconds that the slow part takes in a step, and in all steps but the first, which belongs to the start.
SLOW = 0.05
IN_STEPS = SLOW * (STEPS * EPOCHS - 1)
X = np.ones((STEPS * 8, 4), "float32")


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def slow(dataset: tf.data.Dataset, seconds: float = SLOW / 8) -> tf.data.Dataset:
    """Inputs and targets of each example, which take some time to read."""

    def wait(x: np.ndarray) -> np.ndarray:
        time.sleep(seconds)
        return x

    def read(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x = tf.ensure_shape(tf.numpy_function(wait, [x], tf.float32), [4])
        return x, x[:1]

    return dataset.map(read)


def examples() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(X)


def fit(data=X, y=X[:, :1], **arguments) -> tfdistr.FitResult:
    given = {"batch_size": 8, "epochs": EPOCHS, "seed": 1, "shuffle": False, "verbose": 0}
    return tfdistr.distributed_fit(model, data, y, **given | arguments)


def times(fitted: tfdistr.FitResult, worker: int = 0) -> dict[str, float]:
    return fitted.workers[worker]["times"]


def check_sum(fitted: tfdistr.FitResult, seconds: float) -> None:
    """The parts of one worker are all of its time, which the caller measured, and none is counted twice."""
    total = sum(times(fitted).values())
    assert 0.8 * seconds - 0.2 < total <= seconds


class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(SLOW)


def test_a_worker_alone_knows_all_parts():
    began = time.monotonic()
    alone = fit()
    check_sum(alone, time.monotonic() - began)
    assert list(times(alone)) == list(PARTS)
    assert times(alone)["waiting_for_peers"] == times(alone)["exchanging"] == 0.0
    assert max(times(alone), key=times(alone).get) == "start"
    assert str(alone).splitlines()[-1].startswith("Time: ")


@pytest.mark.parametrize(
    "data",
    [
        lambda context: slow(context.shard(examples())),
        lambda context: slow(examples()).filter(lambda x, y: tf.reduce_all(x > 0)),  # of unknown length
    ],
    ids=["in the graph", "one by one"],
)
def test_a_slow_data_function_is_a_wait_for_data(data):
    began = time.monotonic()
    fitted = fit(data, None)
    assert times(fitted)["waiting_for_data"] > 0.7 * IN_STEPS
    # A busy machine makes everything longer: that nothing is counted twice shows in the sum.
    check_sum(fitted, time.monotonic() - began)


def test_keras_own_loop_knows_no_waits_for_data():
    def own() -> keras.Model:
        made = OwnLoop([keras.Input((4,)), keras.layers.Dense(1)])
        made.compile("sgd", "mse")
        return made

    began = time.monotonic()
    fitted = tfdistr.distributed_fit(
        own, X, X[:, :1], batch_size=8, epochs=EPOCHS, callbacks=[Slow()], verbose=0
    )
    assert set(PARTS) - set(times(fitted)) == {"waiting_for_data"}
    assert times(fitted)["callbacks"] >= 0.9 * IN_STEPS
    check_sum(fitted, time.monotonic() - began)


@pytest.mark.parametrize("communication", ["mpi", "ring"])
def test_the_peers_of_a_slow_worker_wait(communication):
    def data(context: tfdistr.WorkerContext) -> tf.data.Dataset:
        return slow(context.shard(examples()), SLOW / 8 if context.index == 1 else 0.0)

    strategy = tfdistr.multi_worker_mirrored(communication=communication)
    fitted = fit(data, None, strategy=strategy, cluster=tfdistr.local_cluster(2))
    assert fitted.params["communication"] == communication
    fast, late = times(fitted, 0), times(fitted, 1)
    slow_seconds = IN_STEPS / 2  # it reads half of each batch
    part = "waiting_for_peers" if communication == "mpi" else "exchanging"
    assert ("waiting_for_peers" in fast) == (communication == "mpi")
    assert late["waiting_for_data"] > 0.7 * slow_seconds
    assert fast["waiting_for_data"] < 0.3 * slow_seconds
    assert fast[part] > 0.7 * slow_seconds
    assert late[part] < 0.4 * fast[part]
    assert fitted.to_dict()["workers"][1]["times"] == late

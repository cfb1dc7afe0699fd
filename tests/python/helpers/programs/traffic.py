"""Counts the collectives of training steps, as one worker of a cluster.

Usage: traffic.py FOLDER COMMUNICATION   (worker 0 writes FOLDER/traffic.json)
"""

import json
import sys
from pathlib import Path

import tfdistr

FOLDER, COMMUNICATION = Path(sys.argv[1]), sys.argv[2]
strategy = tfdistr.MultiWorkerMirroredStrategy(communication=COMMUNICATION)

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfdistr.data.source import make_source  # noqa: E402
from tfdistr.training import job, step_blocks  # noqa: E402
from tfdistr.training.tasks import run_task  # noqa: E402

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 20)).astype("float32")
WORDS = rng.integers(0, 40_000, (60, 8)).astype("int32")
Y = rng.integers(0, 3, 60)
EPOCHS = 3  # of 4 steps of 16 examples, the last of 12


def model(width: int = 8) -> keras.Model:
    network = keras.Sequential([
        keras.layers.Dense(width, activation="relu"), keras.layers.Dense(3, activation="softmax"),
    ])  # fmt: skip
    network.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return network


def table(optimizer: str) -> keras.Model:
    """A table of 2.56 MB, of which a step of a worker needs at most 64 rows."""
    network = keras.Sequential([
        keras.Input((8,), dtype="int32"), keras.layers.Embedding(40_000, 16), keras.layers.Flatten(),
        keras.layers.Dense(3, activation="softmax"),
    ])  # fmt: skip
    network.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return network


class Count(keras.callbacks.Callback):
    """Notes what was sent before and after each epoch's steps, and by how many of them."""

    decides = False

    def __init__(self, by_batch: bool) -> None:
        super().__init__()
        self.sent: list[tuple[int, int]] = []
        if by_batch:
            self.on_train_batch_end = lambda batch, logs=None: self.note()

    def note(self) -> None:
        self.sent.append(tuple(strategy.extended.collectives.traffic))

    def on_epoch_begin(self, epoch, logs=None) -> None:
        self.note()

    def on_epoch_end(self, epoch, logs=None) -> None:
        self.note()


def by_distributed_fit(
    by_batch: bool, width: int = 8, dtype: str = "float32", batch_size: int = 16, table_with: str = ""
):
    count = Count(by_batch)
    make, x = (lambda: table(table_with), WORDS) if table_with else (lambda: model(width), X)
    task = job.Job(
        model=make, data=make_source(x, Y), callbacks=[count], batch_size=batch_size,
        epochs=EPOCHS, seed=1, gradient_dtype=dtype, shuffle=False,
    )  # fmt: skip
    trained = run_task(task, strategy, lambda *args, **fields: None)
    return count.sent, trained


def by_keras():
    count = Count(by_batch=True)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        network = model()
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    network.fit(dataset, epochs=EPOCHS, callbacks=[count], verbose=0)
    return count.sent


found = {}
found["each step"], exact = by_distributed_fit(by_batch=True)
if not strategy.is_chief:
    step_blocks.GATHERED_BYTES = 1500  # two steps in a call, where the chief makes four
found["epochs"], _ = by_distributed_fit(by_batch=False)
before = strategy.collectives.seconds
found["large"], large = by_distributed_fit(by_batch=True, width=100_000)
found["seconds"] = [before and strategy.collectives.seconds - before, large.seconds]
found["bfloat16"], rounded = by_distributed_fit(by_batch=True, dtype="bfloat16")
found["bfloat16 under Keras"] = by_keras()
strategy.gradient_dtype = "float32"
found["Keras"] = by_keras()
step_blocks.GATHERED_BYTES = 650  # more than the share of the other worker, less than that of the chief
found["shares"], _ = by_distributed_fit(by_batch=True, batch_size=15)
found["table"], _ = by_distributed_fit(by_batch=True, table_with="sgd")
found["table with Adam"], _ = by_distributed_fit(by_batch=True, table_with="adam")
found["loss"] = [exact.history["loss"][-1], rounded.history["loss"][-1]]
found["weights"] = max(
    float(np.abs(a - b).max())
    for a, b in zip(exact.model.get_weights(), rounded.model.get_weights(), strict=True)
)
if strategy.is_chief:
    (FOLDER / "traffic.json").write_text(json.dumps(found))
strategy.leave()

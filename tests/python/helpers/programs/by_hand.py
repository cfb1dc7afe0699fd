"""The same call in every process of a cluster that was started by hand; notes which examples are trained on.

Usage: by_hand.py FOLDER [TFDS_FOLDER]   (writes FOLDER/<what>-<index>.json: ids of each epoch; and seed)
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

import tfdistr

FOLDER = Path(sys.argv[1])
INDEX = tfdistr.cluster_from_env().worker_index
seen: list[list[int]] = []


class Noting(keras.Model):
    """Notes the ids that each step sees. Ids count from 1; 0 is the row that stands in for an empty batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body = keras.layers.Dense(1)

    def call(self, inputs: dict) -> tf.Tensor:
        return self.body(tf.cast(inputs["id"], tf.float32)[:, tf.newaxis])

    def train_step(self, data: tuple) -> dict:
        tf.numpy_function(lambda ids: seen[-1].extend(i for i in ids.tolist() if i), [data[0]["id"]], [])
        return super().train_step(data)


class NewEpoch(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        seen.append([])


def model() -> keras.Model:
    made = Noting()
    made.compile(keras.optimizers.SGD(1e-9), "mse")
    return made


def example(number: tf.Tensor) -> tuple:
    return {"id": number}, tf.constant(0.0)


def one_file() -> tf.data.Dataset:
    """One TFRecord file with the ids 1 to 50."""
    records = tf.data.TFRecordDataset(str(FOLDER / "ids.tfrecord"))
    return records.map(lambda record: example(tf.strings.to_number(record, tf.int64)))


def mnist(ctx: tfdistr.WorkerContext) -> tf.data.Dataset:
    """Of the one file of MNIST, 203 images by number."""
    images = tfdistr.load_dataset("mnist", "train[:203]", data_dir=sys.argv[2]).dataset()
    return ctx.shard(images.enumerate(1)).map(lambda number, _: example(number))


def fit(what: str, x: object) -> None:
    seen.clear()
    result = tfdistr.distributed_fit(model, x, batch_size=16, epochs=2, callbacks=[NewEpoch()])
    found = {"ids": seen, "seed": result.params["seed"], "loss": result.history["loss"]}
    (FOLDER / f"{what}-{INDEX}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    fit("one_file", one_file)
    if len(sys.argv) > 2:
        fit("mnist", mnist)

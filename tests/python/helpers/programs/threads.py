"""What threads of TensorFlow, Keras and Ray report, under the strategy, as one worker of a cluster.

Usage: threads.py FOLDER   (writes FOLDER/<index>.npz: the values of each case)

The same cases without a strategy say what one process gives: `run(cases, folder)`.
"""

import contextlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdistr

rng = np.random.default_rng(0)
SIZE, BATCH = 50, 16  # the last batch has two examples
IMAGES = rng.normal(size=(SIZE, 8, 8, 1)).astype("float32")
CLASSES = rng.integers(0, 3, SIZE)
ROWS = rng.normal(size=(SIZE, 4)).astype("float32")
TARGETS = ROWS @ np.ones((4, 1), "float32")

Values = dict[str, Any]


class Place:
    """Where the cases run: under a strategy, or in this process alone."""

    def __init__(self, strategy: Any, folder: Path) -> None:
        self.strategy = strategy
        self.folder = folder
        self.index = strategy.worker_index if strategy else 0

    def made(self, build: Callable[[], Any]) -> Any:
        keras.utils.set_random_seed(1)
        with self.strategy.scope() if self.strategy else contextlib.nullcontext():
            return build()


def results(model: keras.Model, history: keras.callbacks.History) -> Values:
    weights = {f"weight {number}": weight for number, weight in enumerate(model.get_weights())}
    return {**weights, **history.history, "steps": int(model.optimizer.iterations.numpy())}


def classifier() -> keras.Model:
    model = keras.Sequential([
        keras.Input((8, 8, 1)), keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.Flatten(),
        keras.layers.Dense(3),
    ])  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05), loss, metrics=["accuracy"])
    return model


class Pairs(keras.utils.PyDataset):
    """Batches with a dictionary of inputs."""

    def __len__(self) -> int:
        return math.ceil(SIZE / BATCH)

    def __getitem__(self, number: int) -> Any:
        rows = slice(number * BATCH, (number + 1) * BATCH)
        return {"image": IMAGES[rows], "row": ROWS[rows]}, TARGETS[rows]


def two_inputs() -> keras.Model:
    inputs = {"image": keras.Input((8, 8, 1), name="image"), "row": keras.Input((4,), name="row")}
    joined = keras.layers.Concatenate()([keras.layers.Flatten()(inputs["image"]), inputs["row"]])
    model = keras.Model(inputs, keras.layers.Dense(1)(joined))
    model.compile("sgd", "mse")
    return model


def keras_20329(place: Place) -> Values:
    model = place.made(two_inputs)
    return results(model, model.fit(Pairs(), epochs=2, shuffle=False, verbose=0))


def keras_21061(place: Place) -> Values:
    """A model without weights."""

    def build() -> keras.Model:
        model = keras.Sequential([keras.Input((1,)), keras.layers.Identity()])
        model.compile("sgd", "mse")
        return model

    model = place.made(build)
    ones, zeros = tf.ones((SIZE, 1)), tf.zeros((SIZE, 1))
    return results(model, model.fit(ones, zeros, batch_size=BATCH, epochs=2, verbose=0))


def ray_47464(place: Place) -> Values:
    """The example of Ray Train: one whole number for each example."""

    def build() -> keras.Model:
        layers = [keras.layers.InputLayer(shape=()), keras.layers.Flatten(), keras.layers.Dense(10)]
        model = keras.Sequential([*layers, keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(1e-4), "mean_squared_error", metrics=["mean_squared_error"])
        return model

    numbers = np.arange(20, dtype="int64")
    model = place.made(build)
    data = tf.data.Dataset.from_tensor_slices((numbers, 2 * numbers)).batch(4)
    return results(model, model.fit(data, epochs=2, verbose=0))


def one_file(place: Place) -> tf.data.Dataset:
    path = place.folder / f"one-{place.index}.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(SIZE):
            writer.write(str(number).encode())
    return tf.data.TFRecordDataset([str(path)]).map(lambda text: tf.strings.to_number(text, tf.int64))


def tensorflow_35878(place: Place) -> Values:
    """A data set in one file, cached and shuffled, without steps_per_epoch: several epochs."""
    all_images, all_classes = tf.constant(IMAGES), tf.constant(CLASSES)
    data = one_file(place).map(lambda number: (tf.gather(all_images, number), tf.gather(all_classes, number)))
    model = place.made(classifier)
    history = model.fit(data.cache().shuffle(SIZE, seed=1).batch(BATCH), epochs=3, verbose=0)
    return results(model, history)


CASES = [keras_20329, keras_21061, ray_47464, tensorflow_35878]


def run(place: Place) -> dict[str, Any]:
    return {f"{case.__name__}/{name}": value for case in CASES for name, value in case(place).items()}


if __name__ == "__main__":
    here = Place(tfdistr.MultiWorkerMirroredStrategy(start_timeout=60), Path(sys.argv[1]))
    np.savez(here.folder / f"{here.index}.npz", **run(here))

"""What threads of TensorFlow, Keras and Ray report, under the strategy, as one worker of a cluster.

Usage: threads.py FOLDER   (writes FOLDER/<index>.npz: the values of each case)

The same cases without a strategy say what one process gives: `run(cases, folder)`.
"""

import contextlib
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

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

    def batches(self, dataset: tf.data.Dataset) -> Any:
        return self.strategy.experimental_distribute_dataset(dataset) if self.strategy else dataset

    def meet(self) -> None:
        """Waits for the other workers."""
        if self.strategy:
            self.strategy.reduce("SUM", tf.constant(1), axis=None)


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


def linear(**clipping: float) -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, **clipping), "mse")
    return model


def images() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((IMAGES, CLASSES))


def keras_20585(place: Place) -> Values:
    """The tutorial of TensorFlow for several workers."""
    model = place.made(classifier)
    data = images().shuffle(SIZE, seed=1).repeat().batch(BATCH)
    return results(model, model.fit(data, epochs=3, steps_per_epoch=4, verbose=0))


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


def keras_19340(place: Place) -> Values:
    model = place.made(classifier)
    history = model.fit(images().batch(BATCH), epochs=2, validation_data=images().batch(BATCH), verbose=0)
    return results(model, history)


def keras_19891(place: Place) -> Values:
    """The loss of evaluate(), then the weight after a step: one weight, one batch."""

    def build() -> keras.Model:
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    model = place.made(build)
    data = tf.data.Dataset.from_tensor_slices((ROWS[:, :1], TARGETS)).batch(SIZE)
    evaluated = model.evaluate(data, verbose=0)
    return {"evaluated": evaluated, **results(model, model.fit(data, verbose=0))}


def keras_20611(place: Place) -> Values:
    """A model with dropout, which is not built before it is trained."""

    def build() -> keras.Model:
        layers = [keras.layers.Dense(8, "gelu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
        return model

    model = place.made(build)
    return results(model, model.fit(ROWS, TARGETS, batch_size=BATCH, epochs=2, verbose=0))


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


def shares_of(place: Place, dataset: tf.data.Dataset) -> Values:
    """The numbers that this worker gets, and how many in each step."""
    shares = [np.reshape(share, -1) for share in place.batches(dataset.batch(BATCH))]
    return {"numbers": np.concatenate(shares), "sizes": [len(share) for share in shares]}


def tensorflow_36846(place: Place) -> Values:
    """Which examples of one file this worker gets."""
    return shares_of(place, one_file(place))


def tensorflow_42146(place: Place) -> Values:
    """Which examples of an array this worker gets, in how many steps."""
    return shares_of(place, tf.data.Dataset.range(SIZE))


def tensorflow_37112(place: Place) -> Values:
    """A loop of one's own over two epochs, whose last batch is short."""
    batches = place.batches(tf.data.Dataset.from_tensor_slices(ROWS).batch(BATCH))
    return {"steps": sum(1 for _ in range(2) for _ in batches)}


def tensorflow_33929(place: Place) -> Values:
    found: Values = {}
    data = tf.data.Dataset.from_tensor_slices((ROWS, TARGETS)).batch(BATCH)
    for clipping in ({"clipnorm": 0.1}, {"global_clipnorm": 0.1}, {"clipvalue": 0.01}):
        model = place.made(lambda clipping=clipping: linear(**clipping))
        values = results(model, model.fit(data, epochs=2, verbose=0))
        found |= {f"{next(iter(clipping))} {name}": value for name, value in values.items()}
    return found


def tensorflow_38635(place: Place) -> Values:
    """All workers save to the same path."""
    model = place.made(linear)
    history = model.fit(tf.data.Dataset.from_tensor_slices((ROWS, TARGETS)).batch(BATCH), verbose=0)
    path = place.folder / "model.keras"
    model.save(path)
    place.meet()  # the chief has written
    saved = {f"saved {number}": w for number, w in enumerate(keras.saving.load_model(path).get_weights())}
    return {**results(model, history), **saved}


CASES = [
    keras_20585, keras_20329, keras_19340, keras_19891, keras_20611, keras_21061, ray_47464, tensorflow_35878,
    tensorflow_36846, tensorflow_42146, tensorflow_37112, tensorflow_33929, tensorflow_38635,
]  # fmt: skip


def run(place: Place) -> dict[str, Any]:
    return {f"{case.__name__}/{name}": value for case in CASES for name, value in case(place).items()}


if __name__ == "__main__":
    here = Place(tfdistr.MultiWorkerMirroredStrategy(start_timeout=60), Path(sys.argv[1]))
    np.savez(here.folder / f"{here.index}.npz", **run(here))

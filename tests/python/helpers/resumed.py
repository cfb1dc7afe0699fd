"""Jobs with checkpoints in this process: their model, their data, and what is compared of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdistr
from tfdistr.tf_internals import optimizers_of

rng = np.random.default_rng(0)
X = rng.normal(size=(90, 4)).astype("float32")  # of 8: twelve batches, the last with two examples
Y = (X[:, 0] * X[:, 1] > 0).astype("int64")


def model() -> keras.Model:
    made = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.BatchNormalization(),
                             keras.layers.Dropout(0.3), keras.layers.Dense(2, "softmax")])  # fmt: skip
    made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made


def plain(rate: float = 0.1, loss: Any = None) -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh", name="hidden"),
                             keras.layers.Dense(2, name="out")])  # fmt: skip
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(rate), loss)
    return made


class TwoOptimizers(keras.Sequential):
    """A step of one's own, with an optimizer for each layer."""

    def compile(self, **given: Any) -> None:
        super().compile(**given)
        self.second = keras.optimizers.Adam(0.01)

    def train_step(self, data: Any) -> Any:
        x, y = data
        for optimizer, layer in zip((self.optimizer, self.second), self.layers, strict=True):
            with tf.GradientTape() as tape:
                losses = keras.losses.sparse_categorical_crossentropy(y, self(x), from_logits=True)
                loss = tf.reduce_mean(losses)
            optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        return {"loss": loss}


def two_optimizers() -> keras.Model:
    made = TwoOptimizers(plain().layers)
    made.compile(optimizer=keras.optimizers.SGD(0.1))
    return made


class OwnLoop(keras.Sequential):
    """Keras trains it, and not the loop of tfdistr."""

    def make_train_function(self, force: bool = False) -> Any:
        return super().make_train_function(force)


class OwnFit(keras.Sequential):
    def fit(self, *args: Any, **kwargs: Any) -> Any:
        return super().fit(*args, **kwargs)


def of_class(kind: type) -> Callable[[], keras.Model]:
    """What makes a model of a class that derives from Sequential."""

    def make() -> keras.Model:
        layers = [keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.3), keras.layers.Dense(2, "softmax")]
        made = kind(layers)
        made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return made

    return make


class At(keras.callbacks.Callback):
    """Does something as an epoch begins."""

    def __init__(self, epoch: int, what: Callable[[], object]) -> None:
        super().__init__()
        self.epoch, self.what = epoch, what

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == self.epoch:
            self.what()


def breaks() -> None:
    raise RuntimeError("the disk is full")


def executes_three() -> keras.Model:
    made = model()
    made.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"], steps_per_execution=3)
    return made


def train(run_dir: Any, make: Any = model, x: Any = X, y: Any = Y, **given: Any) -> tfdistr.FitResult:
    defaults = {"batch_size": 8, "epochs": 4, "seed": 1, "verbose": 0, "checkpoint_every": "epoch"}
    return tfdistr.distributed_fit(make, x, y, run_dir=run_dir, **defaults | given)


SCRIPT = """
import sys
sys.path.insert(0, {helpers!r})
from resumed import X, Y, {model} as model

def data():
    return X, Y

if __name__ == "__main__":
    raise SystemExit("the training")
"""


def script_in(folder: Path, model: str) -> Path:
    """A script with a model of this module and its data, for the commands that train steps again."""
    script = folder / "train.py"
    script.write_text(SCRIPT.format(helpers=str(Path(__file__).parent), model=model))
    return script


def bits(fit: tfdistr.FitResult) -> list[bytes]:
    optimizers = [variable for each in optimizers_of(fit.model) for variable in each.variables]
    values = [*fit.model.get_weights(), *optimizers]
    return [json.dumps(fit.history).encode(), *(np.asarray(value).tobytes() for value in values)]

"""Keras's BackupAndRestore: the data continues in its order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from resumed import At, breaks
from slow import mostly_slow

import tfdistr
from tfdistr.errors import ArgumentError

rng = np.random.default_rng(0)
X = rng.normal(size=(50, 4)).astype("float32")  # of 8: seven batches, the last with two examples
Y = X[:, :1] * X[:, 1:2]


def shuffled() -> dict[str, Any]:
    return {"x": tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(50, seed=5).batch(8)}


def repeated() -> dict[str, Any]:
    endless = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(50, seed=5).repeat().batch(8)
    return {"x": endless, "steps_per_epoch": 5}


def arrays() -> dict[str, Any]:
    return {"x": X, "y": Y, "batch_size": 8, "shuffle": True}


def fit(data: Callable[[], dict[str, Any]], callbacks: list[Any], execution: int = 1) -> list[bytes]:
    """The weights after four epochs, as a new process makes them."""
    keras.utils.set_random_seed(1)
    with tfdistr.MultiWorkerMirroredStrategy().scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", steps_per_execution=execution)
    model.fit(**data(), epochs=4, verbose=0, callbacks=callbacks, validation_data=(X, Y))
    values = [*model.weights, *model.optimizer.variables]
    return [np.asarray(value).tobytes() for value in values]


CASES = [(repeated, 1), (shuffled, 3), (arrays, 1)]


# Slow: trains three times for each.
@pytest.mark.parametrize(("data", "execution"), mostly_slow(CASES, quick=[(repeated, 1)]))
def test_a_restored_fit_ends_with_the_same_bits(tmp_path, data, execution):
    def backup() -> keras.callbacks.Callback:
        return keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))

    full = fit(data, [], execution)
    with pytest.raises(RuntimeError, match="the disk is full"):
        fit(data, [backup(), At(2, breaks)], execution)
    assert (tmp_path / "backup").is_dir()
    assert fit(data, [backup()], execution) == full


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("adam", "mse")
    return made


@pytest.mark.slow(reason="trains three times for each")
def test_so_does_distributed_fit(tmp_path):
    def train(*callbacks: keras.callbacks.Callback) -> list[bytes]:
        result = tfdistr.distributed_fit(
            model, X, Y, batch_size=8, epochs=4, seed=1, verbose=0, callbacks=list(callbacks)
        )
        return [np.asarray(v).tobytes() for v in (*result.model.weights, *result.model.optimizer.variables)]

    def backup() -> keras.callbacks.Callback:
        return keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))

    full = train()
    with pytest.raises(RuntimeError, match="the disk is full"):
        train(backup(), At(2, breaks))
    assert train(backup()) == full


def by_fit(folder: Path, backup: keras.callbacks.Callback) -> None:
    fit(shuffled, [backup])


def by_distributed_fit(folder: Path, backup: keras.callbacks.Callback) -> None:
    tfdistr.distributed_fit(model, X, Y, verbose=0, callbacks=[backup])


@pytest.mark.parametrize("train", [by_fit, by_distributed_fit])
def test_a_backup_within_epochs_is_refused(tmp_path, train):
    with pytest.raises(ArgumentError, match="BackupAndRestore must save after epochs: Keras") as caught:
        train(tmp_path, keras.callbacks.BackupAndRestore(str(tmp_path / "backup"), save_freq=5))
    assert caught.value.received == "save_freq=5"

"""Callbacks of a job that write: the chief writes their files once, and whole."""

import csv
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfdistr

pytestmark = pytest.mark.timeout(240)


def model() -> keras.Model:
    norm = keras.layers.BatchNormalization(name="norm")
    made = keras.Sequential([keras.layers.Flatten(), norm, keras.layers.Dense(10, activation="softmax")])
    made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made


class Touches(keras.callbacks.Callback):
    """Makes a file for each worker that calls it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        Path(f"{self.file}-{tfdistr.worker_index()}").touch()


def test_the_chief_writes_once_and_its_checkpoint_is_whole(tmp_path):
    callbacks = [
        keras.callbacks.ModelCheckpoint(f"{tmp_path}/model.keras"),
        keras.callbacks.CSVLogger(f"{tmp_path}/log.csv"),
        keras.callbacks.TensorBoard(f"{tmp_path}/board", histogram_freq=1, update_freq=2),
        tfdistr.chief_only(Touches(tmp_path / "marked")),
        Touches(tmp_path / "called"),
    ]
    digits = tfdistr.load_dataset("digits", "test")
    fit = tfdistr.distributed_fit(
        model, digits, validation_data=digits, cluster=tfdistr.local_cluster(2), epochs=2, seed=1,
        callbacks=callbacks, verbose=0,
    )  # fmt: skip
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["board", "called-0", "called-1", "log.csv", "marked-0", "model.keras"]
    with (tmp_path / "log.csv").open() as file:
        assert [float(row["loss"]) for row in csv.DictReader(file)] == fit.history["loss"]
    saved = keras.models.load_model(tmp_path / "model.keras")
    for mine, theirs in zip(fit.model.get_weights(), saved.get_weights(), strict=True):
        np.testing.assert_array_equal(theirs, mine)

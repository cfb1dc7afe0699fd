"""Callbacks that write files write them once, on the chief, and their files are whole."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import tfdistr


@pytest.mark.timeout(120)
def test_the_chief_writes_checkpoints_and_logs(tmp_path):
    folder = str(tmp_path)

    def model():
        import keras

        model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")])
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    def callbacks():
        import os
        import pathlib

        import keras

        class Called(keras.callbacks.Callback):
            """One of the user's own: it is called on every worker."""

            def on_train_end(self, logs=None):
                index = os.environ["TF_CONFIG"].rstrip("}").rpartition(" ")[2]
                pathlib.Path(f"{folder}/called-{index}").touch()

        return [
            keras.callbacks.ModelCheckpoint(f"{folder}/model.keras"),
            keras.callbacks.CSVLogger(f"{folder}/log.csv"),
            Called(),
        ]

    digits = tfdistr.load_dataset("digits", "test")
    fit = tfdistr.distributed_fit(
        model, digits, cluster=tfdistr.local_cluster(2), epochs=2, seed=1, callbacks=callbacks, verbose=0
    )
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["called-0", "called-1", "log.csv", "model.keras"]
    with (tmp_path / "log.csv").open() as file:
        assert [float(row["loss"]) for row in csv.DictReader(file)] == fit.history["loss"]
    import keras

    saved = keras.models.load_model(tmp_path / "model.keras")
    for mine, theirs in zip(fit.model.get_weights(), saved.get_weights(), strict=True):
        np.testing.assert_array_equal(theirs, mine)

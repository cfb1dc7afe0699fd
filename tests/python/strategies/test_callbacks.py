"""Callbacks of a job: their files are written once and are whole, and TensorBoard can show its own."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest

import tfdistr

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A job on two workers with callbacks that write, what it printed, and the folder that they wrote to."""
    path = tmp_path_factory.mktemp("job")
    folder = str(path)

    def model():
        import keras

        norm = keras.layers.BatchNormalization(name="norm")
        model = keras.Sequential([keras.layers.Flatten(), norm, keras.layers.Dense(10, activation="softmax")])
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    def callbacks():
        import pathlib

        import keras
        import tensorflow as tf

        import tfdistr

        index = tf.distribute.get_strategy().worker_index

        def touch(name):
            pathlib.Path(f"{folder}/{name}-{index}").touch()

        everywhere = keras.callbacks.LambdaCallback(on_train_end=lambda logs: touch("called"))
        marked = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: touch("marked"))
        return [
            keras.callbacks.ModelCheckpoint(f"{folder}/model.keras"),
            keras.callbacks.CSVLogger(f"{folder}/log.csv"),
            keras.callbacks.TensorBoard(f"{folder}/board", histogram_freq=1, update_freq=2),
            tfdistr.chief_only(marked),
            everywhere,
        ]

    digits = tfdistr.load_dataset("digits", "test")
    fit = tfdistr.distributed_fit(
        model, digits, validation_data=digits, cluster=tfdistr.local_cluster(2), epochs=2, seed=1,
        callbacks=callbacks, verbose=0,
    )  # fmt: skip
    return SimpleNamespace(fit=fit, path=path)


def test_the_chief_writes_once(job):
    names = sorted(path.name for path in job.path.iterdir())
    assert names == ["board", "called-0", "called-1", "log.csv", "marked-0", "model.keras"]
    with (job.path / "log.csv").open() as file:
        assert [float(row["loss"]) for row in csv.DictReader(file)] == job.fit.history["loss"]


def test_a_checkpoint_of_the_chief_is_whole(job):
    import keras

    saved = keras.models.load_model(job.path / "model.keras")
    for mine, theirs in zip(job.fit.model.get_weights(), saved.get_weights(), strict=True):
        np.testing.assert_array_equal(theirs, mine)

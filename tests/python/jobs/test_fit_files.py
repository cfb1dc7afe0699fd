"""Jobs that train from files: the same bits as from the same examples in arrays."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from file_sets import csv, parquet_mixed, resized_images, tfrecord
from resumed import At, bits

import tfdistr
from tfdistr.data import datasets
from tfdistr.errors import ArgumentError
from tfdistr.training import step_blocks

pytestmark = pytest.mark.timeout(280)


class AllColumns(keras.Model):
    """Takes all columns as numbers: of text, the length."""

    def __init__(self) -> None:
        super().__init__()
        self.last = keras.layers.Dense(5)

    def call(self, inputs: Any) -> Any:
        parts = [inputs[name] for name in sorted(inputs)] if isinstance(inputs, dict) else [inputs]
        return self.last(tf.concat([self.as_numbers(part) for part in parts], axis=1) / 100)

    @staticmethod
    def as_numbers(part: tf.Tensor) -> tf.Tensor:
        part = tf.strings.length(part) if part.dtype == tf.string else part
        return tf.reshape(tf.cast(part, tf.float32), [tf.shape(part)[0], int(np.prod(part.shape[1:]))])


def model() -> keras.Model:
    made = AllColumns()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile("adam", loss, metrics=["accuracy"])
    return made


def train(*data: Any, **given: Any) -> tfdistr.FitResult:
    defaults = {"batch_size": 16, "epochs": 2, "seed": 1, "verbose": 0}
    return tfdistr.distributed_fit(model, *data, **defaults | given)


def test_training_from_files_gives_the_bits_of_arrays(tmp_path, monkeypatch):
    """tests/python/data compares the batches of every format."""
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    files = parquet_mixed(tmp_path)
    described = files.described()
    from_files = train(described, validation_data=described)
    from_arrays = train(*files.arrays, validation_data=files.arrays)
    assert bits(from_files) == bits(from_arrays)
    assert from_files.evaluate(described) == from_arrays.evaluate(*files.arrays)
    np.testing.assert_array_equal(from_files.predict(described), from_arrays.predict(files.arrays[0]))


def test_images_of_a_pipeline_give_the_bits_of_arrays(tmp_path, monkeypatch):
    """As those of large batches, which a pipeline reads."""
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    monkeypatch.setattr(step_blocks, "GATHERED_BYTES", 1)
    files = resized_images(tmp_path)
    described = files.described()
    from_files = train(described, validation_data=described)
    assert bits(from_files) == bits(train(*files.arrays, validation_data=files.arrays))


def test_an_image_that_a_pipeline_cannot_decode_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    monkeypatch.setattr(step_blocks, "GATHERED_BYTES", 1)
    (tmp_path / "cat").mkdir()
    image = tf.io.encode_png(np.zeros((20, 20, 3), np.uint8)).numpy()
    for number in range(100):
        (tmp_path / "cat" / f"{number:02}.png").write_bytes(image)
    torn = tmp_path / "cat" / "50.png"  # not one of those that are looked at before a job
    torn.write_bytes(image[:60])
    described = tfdistr.load_dataset("image_folder", files=tmp_path)
    with pytest.raises(ArgumentError, match="Each image must be a whole JPEG, PNG, ") as caught:
        train(described)
    assert caught.value.received == f"{torn}: Invalid PNG data, size 60"


class Stops(keras.callbacks.Callback):
    """Raises an error within an epoch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 5:
            raise RuntimeError("within an epoch")


def test_a_run_that_is_resumed_within_an_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    (tmp_path / "files").mkdir()
    described = parquet_mixed(tmp_path / "files").described()
    with pytest.raises(RuntimeError, match="within an epoch"):
        train(described, run_dir=tmp_path / "run", checkpoint_every=2, callbacks=[Stops()])
    resumed = train(described, run_dir=tmp_path / "run", checkpoint_every=2, resume=True)
    assert bits(resumed) == bits(train(described))
    other = csv(tmp_path).described()
    with pytest.raises(ArgumentError) as caught:
        train(other, run_dir=tmp_path / "run", checkpoint_every=2, resume=True)
    assert described.identity in str(caught.value)


def test_a_file_that_disappears_while_it_trains(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    described = tfrecord(tmp_path).described()
    path = described.files[0]
    with pytest.raises(ArgumentError) as caught:
        train(described, callbacks=[At(1, Path(path).unlink)], epochs=3)
    assert caught.value.received == f"{path}, which was removed (No such file or directory)"

"""Data sets of images and of records: what is refused."""

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from file_sets import CLASSES, EXAMPLES, arrayrecord, images, tfrecord, write_images
from refusals import assert_says, refusal

import tfdistr
from tfdistr.data.readers.record_files import TFRecordFiles
from tfdistr.errors import ArgumentError


def refused(call: Any = tfdistr.load_dataset, *values: Any, **arguments: Any) -> list[str]:
    return refusal(ArgumentError, call, *values, **arguments)


def refused_images(files: Any, **arguments: Any) -> list[str]:
    return refused(name="image_folder", files=files, **arguments)


def test_classes_are_those_of_keras(tmp_path):
    import keras

    described = images(tmp_path).described()
    read = keras.utils.image_dataset_from_directory(tmp_path, image_size=(5, 4), verbose=False)
    assert described.class_names == tuple(read.class_names) == CLASSES
    assert (described.examples, described.files) == (EXAMPLES, (str(tmp_path),))


def test_an_image_of_another_size(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    for number, sides in enumerate([(5, 4, 3), (6, 4, 3)]):
        (folder / f"{number}.png").write_bytes(tf.io.encode_png(np.zeros(sides, np.uint8)).numpy())
    assert f"Received: {folder}/1.png of 6 x 4 pixels, where the first image has 5 x 4" in refused_images(
        tmp_path
    )
    x, _ = tfdistr.load_dataset("image_folder", files=tmp_path, image_size=[2.0, 3.0]).arrays()
    assert (x.shape, x.dtype) == ((2, 2, 3, 3), np.float32)


def test_an_image_that_cannot_be_decoded(tmp_path):
    write_images(tmp_path)
    file = tmp_path / "cat" / "a torn.png"
    file.write_bytes(next((tmp_path / "cat").glob("*.PNG")).read_bytes()[:60])
    message = refused_images(tmp_path)
    assert_says(message, ["Each image must be a whole JPEG", f"Received: {file}: Invalid PNG data, size 60"])
    shutil.rmtree(tmp_path / "dog")
    shutil.rmtree(tmp_path / "Zebra")
    (tmp_path / "cat" / "0.png").write_bytes(b"no image")
    assert refused_images(tmp_path)[1].startswith(
        f"Received: {tmp_path}/cat/0.png: Unknown image file format."
    )


def test_images_that_change(tmp_path):
    described = images(tmp_path).described()
    source = described.open()
    source.take(np.arange(3))
    path = tmp_path / "Zebra" / "001.PNG"
    path.write_bytes(path.read_bytes())
    assert f"Received: {path}, which was written again" in refused(source.take, np.arange(3))
    path.unlink()
    removed = "which was removed (No such file or directory)"
    assert f"Received: {path}, {removed}" in refused(source.take, np.arange(3))
    assert f"Received: {tmp_path}, which has other files than before" in refused(described.open)
    shutil.rmtree(tmp_path)
    assert f"Received: {tmp_path}, {removed}" in refused(described.open)
    tmp_path.mkdir()


@pytest.mark.parametrize("files", ["no folder", None, ["a", "b"]])
def test_what_is_no_folder_of_images(files):
    assert_says(refused_images(files), ["`files` must be a folder that has", f"Received: {files!r}"])


def test_a_folder_without_images(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b.png").touch()
    assert f"Received: {tmp_path}: 1 folders without an image" in refused_images(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "received"),
    [({"image_size": 180}, "180"), ({"image_size": (180,)}, "(180,)"), ({"image_size": "large"}, "'large'"),
     ({"image_size": (0, 1)}, "0"), ({"color_mode": "bgr"}, "'bgr'")],
)  # fmt: skip
def test_arguments_of_images(tmp_path, arguments, received):
    assert f"Received: {received}" in refused_images(tmp_path, **arguments)


def test_features_may_be_those_of_tensorflow(tmp_path):
    files = tfrecord(tmp_path)
    features = {
        "word": tf.io.FixedLenFeature([], tf.string, "none"),
        "x": tf.io.FixedLenFeature((2, 2), tf.float32),
        "label": tf.io.FixedLenFeature([], "int64"),
    }
    described = tfdistr.load_dataset(**files.arguments | {"features": features})
    assert described.options == files.described().options
    of_r = {"x": {"shape": [2.0, 2.0], "dtype": "float32"}, "label": {"shape": 1.0, "dtype": "int64"}}
    x, y = tfdistr.load_dataset(**files.arguments | {"features": of_r, "target": ["label"]}).arrays()
    assert (x.shape, y.shape) == ((EXAMPLES, 2, 2), (EXAMPLES, 1))


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        ({"features": None}, "None"),
        ({"features": {"x": "float64"}}, "'x': 'float64'"),
        ({"features": {"x": {"dtype": "int64", "shape": [0.5]}}}, "0.5"),
        ({"target": "y"}, "'y', of the features 'word', 'x', 'label'"),
        ({"target": ["label", 3]}, "['label', 3], of the features 'word', 'x', 'label'"),
        ({"target": [["x"]]}, "[['x']], of the features 'word', 'x', 'label'"),
        ({"target": ["label", "x", "word"]},
         "['label', 'x', 'word'], of the features 'word', 'x', 'label'"),
    ],
)  # fmt: skip
def test_arguments_of_records(tmp_path, arguments, received):
    assert f"Received: {received}" in refused(**tfrecord(tmp_path).arguments | arguments)


@pytest.mark.parametrize("make", [tfrecord, arrayrecord])
def test_features_that_a_record_does_not_have(make, tmp_path):
    files = make(tmp_path)
    message = refused(
        **files.arguments | {"features": {"x": {"shape": 3, "dtype": "float32"}, "label": "int64"}}
    )
    assert message[0] == "Each record must be a tf.train.Example that has the features of `features`."
    assert message[1] == (
        f"Received: record 0 of {files.arguments['files'][0]}: Key: x, Index: 0.  Number of float values != "
        "expected.  Values size: 4 but output shape: [3]"
    )
    without = {"word": "string", "label": "int64"}
    found = refused(**files.arguments | {"features": without})
    assert found[1].startswith(
        f"Received: record 0 of {files.arguments['files'][0]}: Feature: word (data type: string)"
    )


@pytest.mark.parametrize(
    ("cut", "received"), [(1, "record 42 at 3004 is not whole"), (85, "record 41 at 2921 is not whole")]
)
def test_a_tfrecord_file_that_is_cut(tmp_path, cut, received):
    files = tfrecord(tmp_path)
    path = Path(files.arguments["files"][2])
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    assert f"Received: {path}, of {len(data) - cut} bytes: {received}" in refused(**files.arguments)


@pytest.mark.parametrize("byte", [8, 20], ids=["of the length", "of the data"])
def test_a_record_with_a_wrong_checksum(tmp_path, byte):
    described = tfrecord(tmp_path).described()
    path = Path(described.files[0])
    data = bytearray(path.read_bytes())
    data[TFRecordFiles([str(path)]).positions(0)[30] + byte] ^= 1
    path.write_bytes(data)
    source = described.open()
    source.take(np.array([29, 31]))
    assert f"Received: record 30 of {path} has a wrong checksum" in refused(
        source.take, np.array([29, 30, 31])
    )


def test_an_arrayrecord_file_that_is_not_whole(tmp_path):
    files = arrayrecord(tmp_path)
    path = Path(files.arguments["files"][1])
    described, data = files.described(), path.read_bytes()
    path.write_bytes(data[:-100])
    assert f"Received: {path}, which has no list of its records at its end" in refused(**files.arguments)
    at = data.index(b"word 61") - 20
    path.write_bytes(data[:at] + bytes(40) + data[at + 40 :])
    message = refused(described.open().take, np.array([61]))
    assert message[0] == "`files` must be whole ArrayRecord files."
    assert message[1].startswith(f"Received: {path}, records [1]: ")


def test_array_record_that_is_not_installed(tmp_path, monkeypatch):
    files = arrayrecord(tmp_path)
    monkeypatch.setitem(sys.modules, "array_record.python.array_record_module", None)
    assert "Received: no array_record" in refused(**files.arguments)

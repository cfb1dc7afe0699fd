"""Columns of lists and of images in tables, and what is refused."""

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_sets import EXAMPLES, with_images, write_parquet
from tables import refused, write

import tfdistr
from tfdistr.data import datasets
from tfdistr.data.pipeline.file_examples import of_files
from tfdistr.data.pipeline.host_cache import HostMemory
from tfdistr.data.source import make_source
from tfdistr.errors import ArgumentError


def test_lists_of_several_sizes(tmp_path):
    file = write(tmp_path / "a.parquet", a=[[1, 2], [3, 4], [5]], b=[[[1], [2]], [[3], [4]], [[5], [6, 7]]])
    rule, fix = (
        "All lists of a column must have one size.",
        "Fix: Pad the lists to one size, or leave the column out.",
    )
    for column, found in [("a", "a list of 1, where the first row has one of 2"),
                          ("b", "a list of 2, where the first row has one of 1")]:  # fmt: skip
        described = tfdistr.load_dataset("parquet", files=file, features=column)
        with pytest.raises(ArgumentError) as caught:
            described.arrays()
        received = f"Received: column {column!r} in row 2 of {file}: {found}"
        assert str(caught.value).splitlines() == [rule, received, fix]
    with pytest.raises(ArgumentError, match="column 'a' in row 2 of `x`: a list of 1"):
        make_source(pq.read_table(file))
    file = write(tmp_path / "c.parquet", a=[None, [1, 2]])
    assert refused(files=file) == [
        "A column must have a value in each row.", f"Received: no value of column 'a' in row 0 of {file}",
        "Fix: Pass fill={'a': [0, ...]}, or leave such rows out.",
    ]  # fmt: skip
    assert refused(files=file, fill={"a": 0})[2] == "Fix: Pass fill={'a': [0, ...]}, for example."
    assert tfdistr.load_dataset("parquet", files=file, fill={"a": [0, 0]}).arrays()["a"].tolist() == [
        [0, 0],
        [1, 2],
    ]
    file = write(tmp_path / "b.parquet", a=[[1, 2], [3, None]])
    with pytest.raises(ArgumentError, match=f"no value of column 'a' in row 1 of {file}"):
        tfdistr.load_dataset("parquet", files=file).arrays()


def test_images_that_are_refused(tmp_path):
    table = with_images().slice(0, 4)
    whole = "Each image must be a whole JPEG, PNG, GIF or BMP file."
    cases = [
        (b"no image", whole, ": Unknown image file format."),
        (larger(), "Images of several sizes need `image_size`.",
         " of 6 x 4 pixels, where the first image has 5 x 4"),
        (None, "A column must have a value in each row.", ""),
    ]  # fmt: skip
    for number, (bad, rule, received) in enumerate(cases):
        images = table["image"].to_pylist()
        images[2]["bytes"] = bad
        changed = table.set_column(0, "image", pa.array(images, table.schema.field("image").type))
        file = tmp_path / f"{number}.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, changed.schema) as writer:
            writer.write_table(changed)
        message = refused(name="arrow", files=file, target="label")
        assert message[0] == rule
        place = f"column 'image' in row 2 of {file}"
        assert message[1].startswith(
            f"Received: {place}{received}" if bad else f"Received: no value of {place}"
        )
        if bad is None:
            assert message[2] == "Fix: Leave such rows out."
            filled = refused(name="arrow", files=file, target="label", fill={"image": 0})
            assert filled[0] == "`fill` must have a value of the type of the column."
            assert filled[2] == "Fix: Leave it out: images cannot be filled."
        # Of Parquet files only the first image is looked at before they are read.
        pq.write_table(changed, tmp_path / f"{number}.parquet")
        described = tfdistr.load_dataset("parquet", files=tmp_path / f"{number}.parquet", target="label")
        with pytest.raises(ArgumentError, match="row 2 of"):
            described.arrays()


def larger() -> bytes:
    import tensorflow as tf

    return tf.io.encode_png(np.zeros((6, 4, 3), np.uint8)).numpy()


def test_a_damaged_image_is_named_by_its_row_when_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "IN_MEMORY_BYTES", 1)
    table = with_images()
    images = table["image"].to_pylist()
    images[90]["bytes"] = images[90]["bytes"][:40]
    changed = table.set_column(0, "image", pa.array(images, table.schema.field("image").type))
    files = write_parquet(tmp_path, changed)
    described = tfdistr.load_dataset("parquet", files=files, features="image")
    take = of_files(described, HostMemory(), shuffle=True).take
    take(np.arange(0, 80, 3))
    with pytest.raises(ArgumentError, match=f"column 'image' in row 49 of {files[2]}: "):
        take(np.array([3, 90]))


def test_arguments_of_images_need_images(tmp_path):
    file = write(tmp_path / "a.parquet", a=[1, 2], b=["u", "v"])
    assert refused(files=file, image_size=(2, 2)) == [
        "`image_size` needs a column of images.",
        "Received: column 'a' of int64, column 'b' of text",
        "Fix: Leave `image_size` out. Images are structures with the bytes of an image file.",
    ]
    with pytest.raises(ArgumentError, match=r"Images must be in files(.|\n)*column 'image' of `x`: images"):
        make_source(with_images())


def test_resized_images_have_one_type_with_another_floatx(tmp_path, monkeypatch):
    monkeypatch.setattr(keras.config, "floatx", lambda: "float64")
    write_parquet(tmp_path, with_images())
    described = tfdistr.load_dataset(
        "parquet", files=tmp_path, features=["image", "boxes"], image_size=(2, 2)
    )
    x, batch = described.arrays(), next(iter(described.dataset()))
    assert {name: part.dtype.name for name, part in x.items()} == {"image": "float32", "boxes": "float64"}
    assert {name: part.dtype.name for name, part in batch.items()} == {"image": "float32", "boxes": "float64"}


def test_files_of_images_without_rows(tmp_path):
    empty, full = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(with_images().slice(0, 0), empty)
    assert refused(files=empty, target="label")[0] == "`files` must hold at least one example."
    pq.write_table(with_images(), full)
    x, _ = tfdistr.load_dataset("parquet", files=tmp_path, features="image", target="label").arrays()
    assert x.shape == (EXAMPLES, 5, 4, 3)

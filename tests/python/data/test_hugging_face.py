"""The files that Hugging Face's library of data sets writes."""

from typing import Any

import numpy as np
import pytest
from file_sets import EXAMPLES, pictures
from refusals import refusal

import tfdistr
from tfdistr.data.source import make_source
from tfdistr.errors import ArgumentError

hugging_face = pytest.importorskip("datasets")


@pytest.fixture
def written() -> Any:
    """Its images, classes, vectors, matrices and lists, in an order that only a table of indices has."""
    hugging_face.disable_progress_bars()
    pixels, labels = pictures()
    from PIL import Image

    number = np.arange(EXAMPLES)
    features = hugging_face.Features(
        {
            "image": hugging_face.Image(), "class": hugging_face.ClassLabel(names=["a", "b", "c"]),
            "vector": hugging_face.Sequence(hugging_face.Value("float32"), length=2),
            "matrix": hugging_face.Array2D((2, 3), "int32"),
            "tokens": hugging_face.Sequence(hugging_face.Value("int64")),
            "text": hugging_face.Value("string"),
        }
    )  # fmt: skip
    columns = {
        "image": [Image.fromarray(one) for one in pixels], "class": labels.tolist(),
        "vector": np.stack([number, -number], axis=1).tolist(),
        "matrix": np.arange(6 * EXAMPLES).reshape(-1, 2, 3).tolist(),
        "tokens": [[one, one + 1, 0] for one in number.tolist()],
        "text": [f"word {one}" for one in number],
    }  # fmt: skip
    return hugging_face.Dataset.from_dict(columns, features=features).shuffle(seed=1)


@pytest.mark.parametrize("form", ["save_to_disk", "to_parquet"])
def test_its_files_are_read(written, form, tmp_path):
    if form == "save_to_disk":
        written.save_to_disk(tmp_path / "data", num_shards=3)
        arguments: dict[str, Any] = {"name": "arrow", "files": tmp_path / "data"}
    else:
        written.to_parquet(tmp_path / "data.parquet", batch_size=20)
        arguments = {"name": "parquet", "files": tmp_path / "data.parquet"}
    x, y = tfdistr.load_dataset(**arguments, target="class").arrays()
    rows = list(written)
    assert y.tolist() == [row["class"] for row in rows]
    np.testing.assert_array_equal(x["image"], np.stack([np.asarray(row["image"]) for row in rows]))
    for name in ("vector", "matrix", "tokens", "text"):
        np.testing.assert_array_equal(x[name], np.array([row[name] for row in rows]))
    alone, _ = tfdistr.load_dataset(**arguments, features="image", target="class").arrays()
    np.testing.assert_array_equal(alone, x["image"])


def test_a_dataset_is_its_table(written):
    """In its own order, and in any format that it was given."""
    chosen = written.with_format("numpy").select_columns(["vector", "tokens", "matrix", "text"])
    source, rows = make_source(chosen, written["class"]), list(written)
    x, y = source.parts
    assert y.tolist() == [row["class"] for row in rows]
    for name, part in x.items():
        np.testing.assert_array_equal(part, np.array([row[name] for row in rows]))
    numbers = hugging_face.Dataset.from_dict({"a": [1, 2], "b": [0.5, 1.5]})
    assert make_source(numbers).parts[0].tolist() == [[1, 0.5], [2, 1.5]]
    with pytest.raises(ArgumentError, match=r"Images must be in files(.|\n)*column 'image' of `x`: images"):
        make_source(written)


@pytest.mark.parametrize("kind", ["DatasetDict", "IterableDataset"])
def test_its_other_objects_are_no_data(kind):
    made = hugging_face.Dataset.from_dict({"a": [1, 2], "y": [0, 1]})
    value = hugging_face.DatasetDict(train=made) if kind == "DatasetDict" else made.to_iterable_dataset()
    message = refusal(ArgumentError, make_source, value)
    assert message[0] == "`x` must be a table in memory, or files by their names."
    assert message[1].startswith("Received: an object of class datasets.")
    assert message[1].endswith(f".{kind}")
    assert message[2] == 'Fix: Pass a Dataset, such as data["train"] of a DatasetDict.'

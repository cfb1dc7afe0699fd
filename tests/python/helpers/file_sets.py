"""The same examples in files of each format, and in arrays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tfdistr

EXAMPLES = 103


class FileSet(NamedTuple):
    """A data set in files: the arguments of ``load_dataset()``, and its examples as arrays ``(x, y)``."""

    arguments: dict[str, Any]
    arrays: tuple[Any, ...]

    def described(self) -> Any:
        return tfdistr.load_dataset(**self.arguments)


def columns() -> dict[str, np.ndarray]:
    """Columns of numbers of several types, of text and of logical values."""
    draw = np.random.default_rng(7)
    return {
        "height": draw.normal(size=EXAMPLES),
        "age": draw.integers(0, 90, EXAMPLES, np.int32),
        "weight": draw.normal(size=EXAMPLES).astype(np.float32),
        "word": np.array([f"word {i} é" for i in range(EXAMPLES)], object),
        "member": draw.integers(0, 2, EXAMPLES).astype(bool),
        "label": draw.integers(0, 5, EXAMPLES),
    }


def matrix(*names: str) -> np.ndarray:
    """Columns of numbers, as those of a data frame become a matrix."""
    return np.stack([columns()[name].astype(np.float64) for name in names], axis=1)


NUMBERS = ("height", "age", "weight", "member")


def write_parquet(folder: Path, table: Any = None, rows: int = 17) -> list[str]:
    """Write three files with row groups of at most ``rows`` rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns()) if table is None else table
    paths = []
    for number, (first, end) in enumerate([(0, 40), (40, 41), (41, EXAMPLES)]):
        paths.append(str(folder / f"part-{number}.parquet"))
        pq.write_table(table.slice(first, end - first), paths[-1], row_group_size=rows)
    return paths


def parquet_numbers(folder: Path) -> FileSet:
    write_parquet(folder)
    arguments = {"name": "parquet", "files": folder, "features": list(NUMBERS), "target": "label"}
    return FileSet(arguments, (matrix(*NUMBERS), columns()["label"]))


def parquet_mixed(folder: Path) -> FileSet:
    names = ["word", "height", "member"]
    arguments = {"name": "parquet", "files": write_parquet(folder), "features": names, "target": "label"}
    return FileSet(arguments, ({name: columns()[name] for name in names}, columns()["label"]))


def csv(folder: Path) -> FileSet:
    """Two files, in which numbers with a fraction and text come late."""
    names = [*NUMBERS, "word", "label"]
    rows = list(zip(*(columns()[name].tolist() for name in names), strict=True))
    for number, part in enumerate((rows[:50], rows[50:])):
        lines = [",".join(str(value) for value in row) for row in part]
        (folder / f"{number}.csv").write_text("\n".join([",".join(names), *lines]) + "\n")
    arguments = {"name": "csv", "files": folder, "features": list(NUMBERS), "target": "label"}
    numbers = columns() | {"weight": np.array([float(str(value)) for value in columns()["weight"].tolist()])}
    stacked = np.stack([numbers[name].astype(np.float64) for name in NUMBERS], axis=1)
    return FileSet(arguments, (stacked, columns()["label"]))


def arrow(folder: Path) -> FileSet:
    """A file, and a stream as data sets of Hugging Face have it, of some record batches each."""
    import pyarrow as pa

    table, parts = pa.table(columns()), []
    for number, (make, first, end) in enumerate(
        [(pa.ipc.new_file, 0, 70), (pa.ipc.new_stream, 70, EXAMPLES)]
    ):
        parts.append(str(folder / f"data-{number}.arrow"))
        with pa.OSFile(parts[-1], "wb") as file, make(file, table.schema) as writer:
            writer.write_table(table.slice(first, end - first), max_chunksize=20)
    names = ["word", "weight"]
    arguments = {"name": "arrow", "files": folder, "features": names, "target": "label"}
    return FileSet(arguments, ({name: columns()[name] for name in names}, columns()["label"]))


def pictures() -> tuple[np.ndarray, np.ndarray]:
    """Images that tell their number, and their classes in order."""
    labels = np.sort(np.arange(EXAMPLES, dtype=np.int32) % 3)
    draw = np.random.default_rng(3)
    return draw.integers(0, 256, (EXAMPLES, 5, 4, 3), np.uint8), labels


CLASSES = ("Zebra", "cat", "dog")


def write_images(folder: Path) -> None:
    import tensorflow as tf

    for number, (image, label) in enumerate(zip(*pictures(), strict=True)):
        (folder / CLASSES[label]).mkdir(exist_ok=True)
        (folder / CLASSES[label] / f"{number:03}.PNG").write_bytes(tf.io.encode_png(image).numpy())
        (folder / CLASSES[label] / "notes.md").write_text("no image")


def images(folder: Path) -> FileSet:
    write_images(folder)
    return FileSet({"name": "image_folder", "files": folder}, pictures())


def resized_images(folder: Path) -> FileSet:
    import keras

    write_images(folder)
    read = keras.utils.image_dataset_from_directory(
        folder, image_size=(6, 3), color_mode="grayscale", shuffle=False, batch_size=None, verbose=False
    )
    found = [np.stack(parts) for parts in zip(*read.as_numpy_iterator(), strict=True)]
    arguments = {"name": "image_folder", "files": folder, "image_size": (6, 3), "color_mode": "grayscale"}
    return FileSet(arguments, tuple(found))


def with_images() -> Any:
    """A table of images as Hugging Face's datasets have them, of lists, and of lists of lists."""
    import pyarrow as pa
    import tensorflow as tf

    pixels, labels = pictures()
    encoded = [{"bytes": tf.io.encode_png(image).numpy(), "path": None} for image in pixels]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    tokens, boxes = lists()
    return pa.table(
        {
            "image": pa.array(encoded, kind), "tokens": tokens.tolist(), "label": labels,
            "boxes": pa.array(boxes.tolist(), pa.list_(pa.list_(pa.float32(), 2))),
        }
    )  # fmt: skip


def lists() -> tuple[np.ndarray, np.ndarray]:
    """Five tokens, and three boxes of two numbers."""
    number = np.arange(EXAMPLES)
    boxes = np.arange(6 * EXAMPLES, dtype=np.float32).reshape(-1, 3, 2) / 4
    return np.stack([number + place for place in range(5)], axis=1), boxes


def parquet_images(folder: Path) -> FileSet:
    names = ["image", "tokens", "boxes"]
    files = write_parquet(folder, with_images())
    (pixels, labels), (tokens, boxes) = pictures(), lists()
    arguments = {"name": "parquet", "files": files, "features": names, "target": "label"}
    return FileSet(arguments, ({"image": pixels, "tokens": tokens, "boxes": boxes}, labels))


def arrow_images(folder: Path) -> FileSet:
    """Images alone, of which Keras makes those that are expected."""
    import pyarrow as pa

    (folder / "images").mkdir()
    x, y = resized_images(folder / "images").arrays
    with pa.OSFile(str(folder / "data.arrow"), "wb") as file:
        table = with_images()
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=20)
    arguments = {"name": "arrow", "files": folder, "features": "image", "target": "label"}
    return FileSet(arguments | {"image_size": (6, 3), "color_mode": "grayscale"}, (x, y))


def serialized(number: int) -> bytes:
    """An example of records."""
    import tensorflow as tf

    def of_floats(values: Any) -> Any:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    word = tf.train.Feature(bytes_list=tf.train.BytesList(value=[f"word {number}".encode()]))
    label = tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 5]))
    feature = {"x": of_floats([number, 0.5, -number, 1.25]), "label": label}
    feature |= {"word": word} if number % 2 else {}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def records(name: str, paths: list[str]) -> FileSet:
    """The description of files of examples, and the examples as arrays."""
    features = {
        "word": {"dtype": "string", "default": "none"}, "x": {"shape": [2, 2], "dtype": "float32"},
        "label": "int64",
    }  # fmt: skip
    number = np.arange(EXAMPLES)
    x = np.stack([number, 0 * number + 0.5, -number, 0 * number + 1.25], 1).astype(np.float32)
    words = np.array([f"word {i}" if i % 2 else "none" for i in number], object)
    arguments = {"name": name, "files": paths, "features": features, "target": "label"}
    return FileSet(arguments, ({"x": x.reshape(-1, 2, 2), "word": words}, number % 5))


def tfrecord(folder: Path) -> FileSet:
    import tensorflow as tf

    paths = [str(folder / f"{part}.tfrecord") for part in range(3)]
    for path, (first, end) in zip(paths, [(0, 60), (60, 60), (60, EXAMPLES)], strict=True):
        with tf.io.TFRecordWriter(path) as writer:
            for number in range(first, end):
                writer.write(serialized(number))
    return records("tfrecord", paths)


def arrayrecord(folder: Path) -> FileSet:
    module = pytest.importorskip("array_record.python.array_record_module")
    paths = [str(folder / f"{part}.arrayrecord") for part in range(2)]
    for path, (first, end) in zip(paths, [(0, 60), (60, EXAMPLES)], strict=True):
        writer = module.ArrayRecordWriter(path, "group_size:1")
        for number in range(first, end):
            writer.write(serialized(number))
        writer.close()
    return records("arrayrecord", paths)


SETS: dict[str, Callable[[Path], FileSet]] = {
    "parquet": parquet_numbers,
    "parquet with text": parquet_mixed,
    "parquet with images": parquet_images,
    "csv": csv,
    "arrow": arrow,
    "arrow, resized images": arrow_images,
    "image_folder": images,
    "image_folder, resized": resized_images,
    "tfrecord": tfrecord,
    "arrayrecord": arrayrecord,
}

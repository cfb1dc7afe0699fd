"""Data sets in files of tables: their columns, and what is refused."""

import datetime
import pickle
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_sets import EXAMPLES, columns, parquet_numbers, with_images, write_parquet
from refusals import assert_says, refusal

import tfdistr
from tfdistr.data import datasets
from tfdistr.data.pipeline.file_examples import of_files
from tfdistr.data.pipeline.host_cache import HostMemory
from tfdistr.data.source import describe_source, make_source
from tfdistr.errors import ArgumentError, TfdistrWarning


def write(path: Path, **of_columns: Any) -> str:
    pq.write_table(pa.table(of_columns), path, row_group_size=2)
    return str(path)


def refused(**arguments: Any) -> list[str]:
    return refusal(ArgumentError, tfdistr.load_dataset, **{"name": "parquet"} | arguments)


def test_numbers_become_a_matrix_as_in_a_data_frame(tmp_path):
    pandas = pytest.importorskip("pandas")
    file = write(tmp_path / "a.parquet", a=[1, 2**30 + 1, 3], b=[0.1, 0.2, 0.3])
    frame = pandas.read_parquet(file)
    expected = make_source(frame).by_rows[0].astype(np.float32)
    found = tfdistr.load_dataset("parquet", files=file).arrays()
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def test_columns_of_all_kinds(tmp_path):
    file = write(
        tmp_path / "a.parquet",
        text=["a", "é", ""],
        raw=[b"\xff", b"", b"x"],
        category=pa.array(["u", "v", "u"]).dictionary_encode(),
        small=pa.array([1, 2, 3], pa.uint8()),
        half=pa.array([0.5, 1.5, np.nan], pa.float16()),
        vector=pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6.0)), 2),
        logical=[True, False, True],
        large=pa.array(["l", "m", "n"], pa.large_string()),
    )
    found = tfdistr.load_dataset("parquet", files=file).arrays()
    assert {name: (part.dtype.name, part.shape) for name, part in found.items()} == {
        "text": ("object", (3,)), "raw": ("object", (3,)), "category": ("object", (3,)),
        "small": ("uint8", (3,)), "half": ("float32", (3,)), "vector": ("float32", (3, 2)),
        "logical": ("bool", (3,)), "large": ("object", (3,)),
    }  # fmt: skip
    assert found["text"].tolist() == ["a", "é", ""]
    assert found["raw"].tolist() == [b"\xff", "", "x"]
    assert found["category"].tolist() == ["u", "v", "u"]
    assert np.isnan(found["half"][2]), "NaN is a number"
    assert found["vector"].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_the_user_chooses_the_form(tmp_path):
    file = write(tmp_path / "a.parquet", a=[1, 2], b=[3, 4], c=[5, 6])
    described = tfdistr.load_dataset("parquet", files=file, features=["b", "a"], target=["c"], matrix=False)
    x, y = described.arrays()
    assert {name: part.tolist() for name, part in x.items()} == {"b": [3, 4], "a": [1, 2]}
    assert y["c"].tolist() == [5, 6]
    x, y = tfdistr.load_dataset("parquet", files=file, features=("b", "a"), target="c").arrays()
    assert x.tolist() == [[3, 1], [4, 2]]
    assert (y.tolist(), y.dtype) == ([5, 6], np.int64)
    x, y = tfdistr.load_dataset("parquet", files=file, target=["c", "a"]).arrays()
    assert (x.tolist(), y.tolist()) == ([[3], [4]], [[5, 1], [6, 2]])


def test_what_stands_for_missing_values(tmp_path):
    file = write(tmp_path / "a.parquet", a=[1, None, 3], b=["x", None, "y"])
    filled = tfdistr.load_dataset("parquet", files=file, fill={"a": -1, "b": "none"}).arrays()
    assert {name: part.tolist() for name, part in filled.items()} == {
        "a": [1, -1, 3],
        "b": ["x", "none", "y"],
    }
    one = tfdistr.load_dataset("parquet", files=file, features="a", fill=-1.0).arrays()
    assert one.tolist() == [[1], [-1], [3]]


def test_files_are_found_in_the_order_of_their_names(tmp_path):
    paths = write_parquet(tmp_path)
    for files in (str(tmp_path), tmp_path, f"{tmp_path}/part-*.parquet", f"{tmp_path}/**/*.parquet", paths):
        assert tfdistr.load_dataset("parquet", files=files).files == tuple(paths)
    turned = tfdistr.load_dataset("parquet", files=paths[::-1], features="age")
    assert turned.files == tuple(paths[::-1])
    assert turned.arrays()[0] == columns()["age"][41]


def test_a_description_is_small_and_says_what_it_is_of(tmp_path):
    described = parquet_numbers(tmp_path).described()
    sent = pickle.dumps(described)
    assert len(sent) < 1000
    assert pickle.loads(sent) == described
    assert describe_source(described).startswith("the data set 'parquet', 103 examples, 3 files, ")
    others = [
        tfdistr.load_dataset("parquet", files=described.files, features=["height"], target="label"),
        tfdistr.load_dataset("parquet", files=described.files[::-1], **dict(described.options)),
    ]
    assert len({one.identity for one in (described, *others)}) == 3
    of_r = tfdistr.load_dataset("parquet", files=tmp_path, features="age", fill=0.0)
    assert of_r.identity == tfdistr.load_dataset("parquet", files=tmp_path, features=["age"], fill=0).identity


def test_files_that_are_not_there(tmp_path):
    (tmp_path / "empty").mkdir()
    for files, received in [
        (tmp_path / "no.parquet", f"'{tmp_path}/no.parquet', which is not there"),
        (f"{tmp_path}/*.parquet", f"'{tmp_path}/*.parquet', which matches no file"),
        (tmp_path / "empty", f"the folder '{tmp_path}/empty', without a file of this kind"),
    ]:
        assert f"Received: {received}" in refused(files=files)


@pytest.mark.parametrize("files", [None, [], 3, "", ["a", None]])
def test_files_that_are_no_paths(files):
    assert_says(refused(files=files), ["`files` must be a path, a pattern,", f"Received: {files!r}"])


def test_columns_that_are_not_there(tmp_path):
    file = write(tmp_path / "a.parquet", a=[1, 2], b=[3, 4])
    received = f"Received: 'c', which {file} has not among 'a', 'b'"
    assert received in refused(files=file, features=["a", "c"])
    assert received in refused(files=file, target="c")
    other = write(tmp_path / "b.parquet", a=[1])
    assert refused(files=[file, other])[1] == f"Received: 'b', which {other} has not among 'a'"
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), other)
    assert refused(files=other, features="a")[1] == f"Received: 'a', which {other} has 2 times"


def test_columns_that_change_their_type(tmp_path):
    one, other = write(tmp_path / "a.parquet", a=[1, 2]), write(tmp_path / "b.parquet", a=[1.5])
    assert f"Received: column 'a' of {other}: double, where {one} has int64" in refused(files=tmp_path)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([1, 2]), 2)
    one = write(tmp_path / "a.parquet", a=vectors)
    assert refused(files=tmp_path)[1].endswith(f"{other}: double, where {one} has lists of 2 int64")
    one = write(tmp_path / "a.parquet", a=["text"])
    assert refused(files=tmp_path)[1].endswith(f"{other}: double, where {one} has text")


@pytest.mark.parametrize(
    ("values", "kind"),
    [([datetime.date(2026, 1, 1)], "date32[day]"), ([["a"], ["b"]], "list<element: string>"),
     ([{"a": 1}], "struct<a: int64>"), ([{"path": "a.png"}], "struct<path: string>"), ([None, None], "null")],
)  # fmt: skip
def test_columns_of_other_types(tmp_path, values, kind):
    file = write(tmp_path / "a.parquet", a=values, b=list(range(len(values))))
    assert f"Received: column 'a' of {file}: {kind}" in refused(files=file)
    assert len(tfdistr.load_dataset("parquet", files=file, features="b").arrays()) == len(values)


def test_missing_values(tmp_path):
    whole = write(tmp_path / "a.parquet", a=[1, 2, 3], b=["x", "y", "z"])
    file = write(tmp_path / "b.parquet", a=[1, 2, 3, 4, None], b=["x", "y", None, "z", "z"])
    assert refused(files=[whole, file], features="a")[1:] == [
        f"Received: no value of column 'a' in row 4 of {file}",
        "Fix: Pass fill={'a': 0}, or leave such rows out.",
    ]
    assert refused(files=[whole, file], fill={"a": 0})[1:] == [
        f"Received: no value of column 'b' in row 2 of {file}",
        "Fix: Pass fill={'b': ''}, or leave such rows out.",
    ]


def test_missing_values_that_no_statistics_tell_of(tmp_path):
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1, 2, None]}), file, row_group_size=2, write_statistics=False)
    with pytest.raises(ArgumentError) as caught:
        tfdistr.load_dataset("parquet", files=file).arrays()
    assert caught.value.received == f"no value of column 'a' in row 2 of {file}"
    lists = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, None]), 2)
    pq.write_table(pa.table({"a": lists}), file)
    with pytest.raises(ArgumentError) as caught:
        tfdistr.load_dataset("parquet", files=file).arrays()
    assert caught.value.received == f"no value of column 'a' in row 1 of {file}"


@pytest.mark.parametrize(
    ("arguments", "received", "fix"),
    [
        ({"features": []}, "none beside the target, of 'a', 'b'", "Name the columns"),
        ({"target": ["a", 3]}, "a list of length 2", 'Pass target=["height", "weight"], for example.'),
        ({"features": ["a", "b", "a"]}, "'a' more than once", "Leave it out once."),
        ({"features": "a", "target": "a"}, "'a' in `features` and in `target`", "Leave it out of one"),
        ({"matrix": True}, "matrix=True, and column 'b' of `features`: text", "Leave `matrix` or the column"),
        ({"fill": [1]}, "a list of length 1", 'Pass fill={"age": 0}, for example.'),
        ({"fill": {"c": 1}}, "'c', where 'a', 'b' are read", "Correct the name, or leave it out."),
        ({"fill": {"a": "x"}}, "'x' for column 'a': int64", "Pass fill={'a': 0}, for example."),
        ({"split": "test"}, "`split`", "Leave it out. The arguments of 'parquet' are "),
    ],
)
def test_arguments_that_are_refused(tmp_path, arguments, received, fix):
    file = write(tmp_path / "a.parquet", a=[1, 2], b=["x", "y"])
    said = refused(files=file, **arguments)
    assert said[1] == f"Received: {received}"
    assert said[2].startswith(f"Fix: {fix}")


def test_arguments_of_files_for_another_data_set():
    fix = "Fix: Leave it out. The arguments of 'digits' are `split`, `data_dir`, `supervised`."
    assert fix in refused(name="digits", files="a.parquet")


def test_files_without_rows(tmp_path):
    file = write(tmp_path / "a.parquet", a=pa.array([], pa.int64()))
    assert "Received: 0 examples in 1 files" in refused(files=file)


def test_files_that_are_not_whole(tmp_path):
    file = Path(write(tmp_path / "a.parquet", a=list(range(1000))))
    data = file.read_bytes()
    file.write_bytes(data[:-5])
    message = refused(files=file)
    assert message[0] == "`files` must be whole Parquet files."
    assert message[1].startswith(f"Received: {file}: Parquet magic bytes not found in footer.")
    file.write_bytes(data[:4] + bytes(1000) + data[1004:])
    described = tfdistr.load_dataset("parquet", files=file)
    with pytest.raises(ArgumentError) as caught:
        described.arrays()
    assert caught.value.message == message[0]
    assert caught.value.received.startswith(f"{file}, from row 0 on: ")


def test_files_that_have_changed_since_the_description(tmp_path):
    file = Path(write(tmp_path / "a.parquet", a=[1, 2]))
    described, size = tfdistr.load_dataset("parquet", files=file), file.stat().st_size
    write(file, a=list(range(100)))
    with pytest.raises(ArgumentError) as caught:
        described.open()
    assert caught.value.received == f"{file}, which has {file.stat().st_size} bytes, and had {size}"


def test_pyarrow_that_is_not_installed(tmp_path, monkeypatch):
    file = write(tmp_path / "a.parquet", a=[1, 2])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "Received: no pyarrow" in refused(files=file)


def text(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_the_types_of_text_files_are_those_of_all_values(tmp_path, monkeypatch):
    """Also of those that come in a later block of the first file, or in another file."""
    one = text(tmp_path / "a.csv", "a,b,c,d,e,f", *["1,1,true,1,x,"] * 3)
    other = text(tmp_path / "b.csv", "f,e,d,c,b,a", "7,NA,yes,false,2.5,2")
    x, y = tfdistr.load_dataset("csv", files=[one, other], target="a", fill={"f": 0}).arrays()
    assert {name: part.tolist() for name, part in x.items()} == {
        "b": [1, 1, 1, 2.5], "c": [True, True, True, False], "d": ["1", "1", "1", "yes"],
        "e": ["x", "x", "x", "NA"], "f": [0, 0, 0, 7],
    }  # fmt: skip
    assert (y.tolist(), y.dtype) == ([1, 1, 1, 2], np.int64)
    assert {name: part.dtype.name for name, part in x.items()} == {
        "b": "float32", "c": "bool", "d": "object", "e": "object", "f": "int64",
    }  # fmt: skip


def test_text_files_with_another_delimiter(tmp_path):
    file = text(tmp_path / "a.csv", "a;b", '1;"x;\ny"', "2; z ")
    found = tfdistr.load_dataset("csv", files=file, delimiter=";").arrays()
    assert {name: part.tolist() for name, part in found.items()} == {"a": [1, 2], "b": ["x;\ny", " z "]}


def test_text_in_targets_is_the_number_of_its_class(tmp_path):
    """The classes are those of all files. Text that stands for a missing value is missing."""
    one = text(tmp_path / "a.csv", "a,b,c", "1,u,10", "2,é,9")
    other = text(tmp_path / "b.csv", "a,b,c", "3,NA,10")
    assert refused(name="csv", files=[one, other], target="b")[1:] == [
        f"Received: no value of column 'b' in row 0 of {other}",
        "Fix: Pass fill={'b': ''}, or leave such rows out.",
    ]
    described = tfdistr.load_dataset("csv", files=[one, other], target="b", fill={"b": "none"})
    assert described.class_names == ("none", "u", "é")
    x, y = described.arrays()
    assert (x.tolist(), y.tolist(), y.dtype) == ([[1, 10], [2, 9], [3, 10]], [1, 2, 0], np.int32)
    file = write(tmp_path / "a.parquet", a=[1, 2, 3], b=["v", "u", "v"], c=pa.array(["9", "10", "9"]))
    described = tfdistr.load_dataset("parquet", files=file, target=["b", "c"])
    assert described.class_names == {"b": ("u", "v"), "c": ("10", "9")}
    assert {name: part.tolist() for name, part in described.arrays()[1].items()} == {
        "b": [1, 0, 1], "c": [1, 0, 1],
    }  # fmt: skip
    file = write(tmp_path / "raw.parquet", a=[1], b=[b"\xff"])
    assert refused(files=file, target="b")[1].startswith("Received: bytes that are not text in column 'b' of")


def test_a_target_of_numbers_and_text_is_told(tmp_path):
    file = text(tmp_path / "a.csv", "a,b", "1,2.5", "2,about 3")
    with pytest.warns(TfdistrWarning, match="text, such as 'about 3', so its 2 values are classes"):
        assert tfdistr.load_dataset("csv", files=file, target="b").class_names == ("2.5", "about 3")


def test_text_files_that_are_refused(tmp_path):
    whole = text(tmp_path / "a.csv", "a,b", "1,2", "3,4")
    for lines, received in [
        (["a,b", "1,2", "3"], "CSV parse error: Row #3: Expected 2 columns, got 1: 3"),
        ([], "Empty CSV file"),
    ]:
        file = tmp_path / "b.csv"
        file.write_text("".join(f"{line}\n" for line in lines))
        assert f"Received: {file}: {received}" in refused(name="csv", files=[whole, file])
    file = text(tmp_path / "b.csv", "a,b", "1,2", ",4")
    assert (
        refused(name="csv", files=[whole, file])[1] == f"Received: no value of column 'a' in row 1 of {file}"
    )
    file = text(tmp_path / "b.csv", "a,c", "1,2")
    assert (
        refused(name="csv", files=[whole, file])[1] == f"Received: 'b', which {file} has not among 'a', 'c'"
    )
    assert "Received: '::'" in refused(name="csv", files=whole, delimiter="::")


def test_arrow_files_that_are_refused(tmp_path):
    file = tmp_path / "a.arrow"
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, pa.schema([("a", pa.int64())])) as writer:
        writer.write_table(pa.table({"a": [1, 2]}))
        writer.write_table(pa.table({"a": [3, None]}))
    assert refused(name="arrow", files=file)[1] == f"Received: no value of column 'a' in row 3 of {file}"
    file.write_bytes(file.read_bytes()[:-20])
    message = refused(name="arrow", files=file)
    assert message[0] == "`files` must be whole Arrow files."
    assert message[1].startswith(f"Received: {file}: ")


def test_a_dataset_of_arrow_is_no_table(tmp_path):
    import pyarrow.dataset

    assert "Received: an object of class pyarrow._dataset.FileSystemDataset" in refusal(
        ArgumentError, make_source, pyarrow.dataset.dataset(write(tmp_path / "a.parquet", a=[1]))
    )


def test_lists_of_several_sizes(tmp_path):
    file = write(tmp_path / "a.parquet", a=[[1, 2], [3, 4], [5]], b=[[[1], [2]], [[3], [4]], [[5], [6, 7]]])
    for column, found in [("a", "a list of 1, where the first row has one of 2"),
                          ("b", "a list of 2, where the first row has one of 1")]:  # fmt: skip
        described = tfdistr.load_dataset("parquet", files=file, features=column)
        with pytest.raises(ArgumentError) as caught:
            described.arrays()
        assert caught.value.received == f"column {column!r} in row 2 of {file}: {found}"
    with pytest.raises(ArgumentError, match="column 'a' in row 2 of `x`: a list of 1"):
        make_source(pq.read_table(file))
    file = write(tmp_path / "c.parquet", a=[None, [1, 2]])
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
    assert "Received: column 'a' of int64, column 'b' of text" in refused(files=file, image_size=(2, 2))
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

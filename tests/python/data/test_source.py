"""What may be passed as data, and what is said about the rest."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tfdistr.data.datasets import load_dataset
from tfdistr.data.form import Columns, check_names
from tfdistr.data.source import Arrays, as_arrays, gives_batches, make_source
from tfdistr.data.trees import leaves
from tfdistr.errors import ArgumentError
from tfdistr.utils.describe import ValueOfR

X = np.arange(12.0).reshape(4, 3)
Y = np.array([0, 1, 1, 0])


def parts(*data, **names) -> tuple:
    source = make_source(*data, **names)
    assert isinstance(source, Arrays)
    return source.parts


def test_arrays_with_targets_and_weights():
    weight = np.ones(4)
    for given in ((X,), (X, Y), (X, Y, weight)):
        made = parts(*given)
        assert len(made) == len(given)
        assert all(np.shares_memory(part, array) for part, array in zip(made, given, strict=True))
    assert make_source(X, Y).examples == 4


def test_arrays_may_be_nested():
    (x, y) = parts({"image": X, "more": [X, (X, X)]}, {"a": Y})
    assert x["image"].shape == (4, 3)
    assert isinstance(x["more"], tuple)
    assert isinstance(x["more"][1], tuple)
    assert [path for path, _ in leaves((x, y))] == [
        "[0]['image']", "[0]['more'][0]", "[0]['more'][1][0]", "[0]['more'][1][1]", "[1]['a']"
    ]  # fmt: skip


def test_leaves_are_in_the_order_of_tensorflow():
    (x,) = parts({"b": X, "a": X + 1})
    assert list(x) == ["b", "a"]
    assert [path for path, _ in leaves(x)] == ["['a']", "['b']"]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2, 3], "int64", None), ([1.5, 2], "float64", None), ([True, False], "bool", None),
        (["a", "bc"], "str64", None), ([b"a", b"bc"], "bytes16", None), ([np.float32(1), 2], "float64", None),
        (["a\0", "b"], "object", None), ([b"a\0"], "object", None),  # NumPy would strip NUL
        (np.array([1, 2**20, 3], ">i4"), "int32", [1, 2**20, 3]),
        (pd.Series(["a", "b"]), "object", ["a", "b"]), (pd.Series([1.5, 2.5]), "float64", [1.5, 2.5]),
        (Columns({"a": [1, 2], "b": [3, 4]}), "float64", [[1, 3], [2, 4]]),
    ],
)  # fmt: skip
def test_what_is_one_array(values, kind, expected):
    x = as_arrays(values, "x")
    assert x.dtype.name == kind
    assert x.tolist() == (values if expected is None else expected)
    assert x.dtype.isnative


def test_arrays_of_r_are_read_as_arrays_whose_rows_lie_together():
    source = make_source(np.asfortranarray(X), {"b": Y, "a": Y + 1})
    first, *others = source.by_rows
    assert first.flags.c_contiguous
    assert first.tolist() == X.tolist()
    assert [other.tolist() for other in others] == [(Y + 1).tolist(), Y.tolist()]


@pytest.mark.parametrize(
    ("kind", "of_matrix"),
    [("float32", "float32"), ("int16", "float32"), ("int32", "float64"), ("float64", "float64")],
)
def test_the_matrix_of_a_data_frame_holds_its_numbers(kind, of_matrix):
    most = np.finfo(kind).max if kind.startswith("float") else np.iinfo(kind).max
    (x,) = parts(pd.DataFrame({"a": np.array([most, 0], kind), "b": [True, False]}))
    assert x.dtype == of_matrix
    assert x.tolist() == [[most, 1], [0, 0]]


def test_a_column_that_is_a_matrix_stays_one():
    made = as_arrays(Columns({"a": Y, "b": X}), "x")
    assert {name: part.shape for name, part in made.items()} == {"a": (4,), "b": (4, 3)}


def test_a_data_frame_with_text_is_a_dictionary_of_columns():
    frame = pd.DataFrame({"a": [1, 2], "b": ["u", "v"], "c": pd.Categorical(["p", "q"]), 4: [1, 2]})
    (x,) = parts(frame)
    assert list(x) == ["a", "b", "c", "4"]
    assert x["a"].dtype == np.int64
    assert x["b"].tolist() == ["u", "v"]
    assert x["c"].tolist() == ["p", "q"]


MISSING = pd.DataFrame({"a": [1, 2], "b": ["u", None]})
TWICE = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
ALIKE = pd.DataFrame([[1, 2], [3, 4]], columns=[1, "1"])
DATES = pd.DataFrame({"day": pd.to_datetime(["2020-01-01", "2020-01-02"])})


@pytest.mark.parametrize(
    ("arguments", "rule", "received"),
    [
        (
            (3,),
            "`x` must be arrays, a data frame, a data set of load_dataset(), or a function.",
            "a number",
        ),
        ((X, "y"), "`y` must be arrays, a data frame", "a text ('y')"),
        ((MISSING,), "`x['b']` must hold numbers, logical values or text, and no missing ones among", "nan"),
        ((DATES,), "`x['day']` must hold numbers", "an array of datetime64"),
        (
            (X, None, Y),
            "`sample_weight` needs `y`: it weights the loss of targets.",
            "`sample_weight` without",
        ),
        (([X, X], Y, [0.5]), "All arrays must have the same", "x[0]: 4, x[1]: 4, y: 4, sample_weight: 1"),
        ((X, Y, list("1234")), "`sample_weight` must hold numbers.", "text"),
        ((X, Y, np.array(list("1234"), object)), "`sample_weight` must hold numbers.", "text"),
        ((X[:0], Y[:0]), "`x` must hold at least one example.", "0 examples"),
        (([],), "`x` must hold at least one array.", "()"),
        ((["", b"\x80"],), "`x` must be convertible to NumPy arrays.", "list: "),
        (({0: [1.0], "a": [2.0]},), "`x` must name its arrays by text.", "the name 0"),
        (([1.5, None],), "`x` must hold numbers, logical values or text, and no missing", "None"),
        (([True, pd.NA],), "`x` must hold numbers, logical values or text, and no missing", "<NA>"),
        ((np.ma.array([1, 2], mask=[0, 1]),), "`x` must hold numbers", "an array with masked values"),
        ((np.zeros(2, "clongdouble"),), "`x` must hold numbers", "an array of complex256"),
        ((TWICE,), "`x` must have a different name for each of its parts.", "the name 'a' more than once"),
        ((ALIKE,), "`x` must have a different name for each of its parts.", "the name '1' more than once"),
    ],
)
def test_what_is_refused(arguments, rule, received):
    with pytest.raises(ArgumentError) as caught:
        make_source(*arguments)
    assert caught.value.message.startswith(rule)
    assert str(caught.value.received).startswith(received)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("names", "received"),
    [
        (["a", "b", "a"], "the name 'a' more than once"),
        (["a", ""], "1 of 2 parts without a name"),
        (["a", ValueOfR("NA")], "1 of 2 parts without a name"),
    ],
)
def test_parts_need_names_of_their_own(names, received):
    with pytest.raises(ArgumentError) as caught:
        check_names(names, "x")
    assert caught.value.message == "`x` must have a different name for each of its parts."
    assert caught.value.received == received
    assert caught.value.fix == "Give each part its own name."


def test_an_array_that_is_empty_of_parts_says_how_to_go_on():
    with pytest.raises(ArgumentError) as caught:
        make_source(X, ())
    assert caught.value.fix == "Pass arrays, or y=None."


def test_objects_that_give_batches_are_taken_as_they_are():
    import tensorflow as tf

    from tfdistr.data.order.context import WorkerContext

    examples = tf.data.Dataset.range(3)
    context = WorkerContext(num_workers=1, index=0, global_batch_size=None)
    for made, batches in ((examples, False), (examples.batch(2), True), (iter([X]), True)):
        source = make_source(made)
        assert (source(context) if isinstance(made, tf.data.Dataset) else source()) is made
        assert gives_batches(source) is batches
    for made in (load_dataset("digits"), lambda ctx: examples):
        assert make_source(made) is made
        assert not gives_batches(made)
    assert not gives_batches(make_source(X))

"""The names of columns and classes, by which later data is matched."""

import numpy as np
import pytest

from tfdistr.data.form import Classes, Columns, Form, Matrix
from tfdistr.data.source import form_of, make_source
from tfdistr.errors import ArgumentError

X = np.arange(12.0).reshape(4, 3)
COLUMNS = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}
Y = Classes(np.array([0, 1, 2, 1]), ("cat", "dog", "owl"))


def later(form: Form, x: object, y: object = None) -> tuple[np.ndarray, ...]:
    return make_source(x, y, name="newdata" if y is None else "x", form=form).parts


@pytest.mark.parametrize("trained", [Columns(COLUMNS), Matrix(X, ("a", "b", "c"))], ids=["frame", "matrix"])
@pytest.mark.parametrize(
    "new",
    [
        Columns({"c": X[:, 2], "more": X[:, 0], "a": X[:, 0], "b": X[:, 1]}),
        Matrix(X[:, [2, 0, 1]], ("c", "a", "b")),
        X,
    ],
    ids=["frame", "matrix", "without names"],
)
def test_columns_are_matched_by_name(trained, new):
    (found,) = later(form_of(make_source(trained)), new)
    np.testing.assert_array_equal(found, X)


@pytest.mark.parametrize("new", [Columns({"a": X[:, 0], "b": X[:, 1]}), Matrix(X, ("a", "b", "d"))])
def test_a_column_that_is_missing_is_named(new):
    with pytest.raises(ArgumentError) as caught:
        later(Form(("a", "b", "c")), new)
    assert caught.value.message == "`newdata` must have the columns that the model was trained with."
    assert caught.value.received.startswith("no column 'c' among 'a', 'b'")
    assert caught.value.fix == "Pass a data frame with the columns 'a', 'b', 'c'."


def test_classes_have_the_numbers_of_the_training():
    form = form_of(make_source(X, Y))
    assert form.levels == {"": ("cat", "dog", "owl")}
    _, found = later(form, X[:2], Classes(np.array([1, 0]), ("dog", "owl")))  # levels that were dropped
    assert found.tolist() == [2, 1]
    _, found = later(form, X[:2], np.array(["owl", "cat"]))
    assert found.tolist() == [2, 0]
    _, found = later(form, X[:2], Classes(np.array([0, 1]), ("dog", "cat", "fox")))  # no row is a fox
    assert found.tolist() == [1, 0]
    _, found = later(form, X[:2], np.array([2, 1]))
    assert found.tolist() == [2, 1]


def test_classes_of_several_targets_are_matched_each():
    y = {"kind": Y, "size": np.ones(4), "frame": Columns({"one": Y})}
    form = form_of(make_source(X, y))
    assert form.levels == {"['kind']": Y.names, "['frame']['one']": Y.names}
    part = Classes(np.array([0]), ("owl",))
    _, found = later(form, X[:1], {"kind": part, "size": np.ones(1), "frame": Columns({"one": part})})
    assert (found["kind"].tolist(), found["frame"].tolist()) == ([2], [[2.0]])


def test_a_class_that_was_not_trained_is_refused():
    form = form_of(make_source(X, Y))
    with pytest.raises(ArgumentError, match=r"`y` must have the classes of the training\.") as caught:
        later(form, X[:1], Classes(np.array([0]), ("fox",)))
    assert caught.value.received == "'fox', where the classes are 'cat', 'dog', 'owl'"


def test_a_factor_of_numbers_stands_for_these_numbers():
    form = form_of(make_source(X, np.array([0, 1, 2, 1])))
    _, found = later(form, X[:2], Classes(np.array([1, 0]), ("0", "2")))
    assert found.tolist() == [2, 0]
    with pytest.raises(ArgumentError, match="`y` must be of the type that `y` of the training") as caught:
        later(form, X[:2], Classes(np.array([1, 0]), ("cat", "dog")))
    assert caught.value.received == "a factor with the levels 'cat', 'dog', where it was numbers"


def test_a_factor_beside_data_of_unknown_form_keeps_its_numbers():
    form = form_of(lambda context: None)
    _, found = later(form, X[:2], Classes(np.array([1, 0]), ("cat", "dog")))
    assert found.tolist() == [1, 0]


def test_columns_of_files_are_matched(tmp_path):
    import tfdistr

    file = tmp_path / "rows.csv"
    file.write_text("a,b,c,y\n0,1,2,0\n3,4,5,1\n")
    form = form_of(tfdistr.load_dataset("csv", files=str(file), features=["c", "a"], target="y"))
    assert form.columns == ("c", "a")
    (found,) = later(form, Columns(COLUMNS))
    np.testing.assert_array_equal(found, X[:, [2, 0]])
    other = tfdistr.load_dataset("csv", files=str(file), features=["a", "c"], target="y")
    with pytest.raises(ArgumentError) as caught:
        later(form, other)
    assert (caught.value.received, caught.value.fix) == ("the columns 'a', 'c'", "Pass features=['c', 'a'].")

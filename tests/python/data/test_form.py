"""The names of columns and classes, by which later data is matched."""

import json

import numpy as np
import pyarrow as pa
import pytest

from tfdistr.data.form import Classes, Columns, Form, Matrix
from tfdistr.data.order.context import WorkerContext
from tfdistr.data.pipeline.batch_objects import Pull
from tfdistr.data.pipeline.fed_batches import FedBatches
from tfdistr.data.pipeline.worker_data import make_data
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
        pa.table({"c": X[:, 2], "a": X[:, 0], "b": X[:, 1]}),
        X,
    ],
    ids=["frame", "matrix", "table", "without names"],
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
    assert form.levels == {"['kind']": Y.names, "['frame']": Y.names}
    part = Classes(np.array([0]), ("owl",))
    _, found = later(form, X[:1], {"kind": part, "size": np.ones(1), "frame": Columns({"one": part})})
    assert (found["kind"].tolist(), found["frame"].tolist()) == ([2], [[2.0]])


def test_a_class_that_was_not_trained_is_refused():
    form = form_of(make_source(X, Y))
    with pytest.raises(ArgumentError, match=r"`y` must have the classes of the training\.") as caught:
        later(form, X[:1], Classes(np.array([0]), ("fox",)))
    assert caught.value.received == "'fox', where the classes are 'cat', 'dog', 'owl'"


@pytest.mark.parametrize(
    ("names", "new"),
    [(("4", "6", "8"), [4, 8]), (("1", "2"), [1.0, 2.0]), (("TRUE", "FALSE"), [True, False])],
    ids=["numbers", "from 1", "logical"],
)
def test_numbers_that_may_be_classes_or_their_numbers_are_refused(names, new):
    form = form_of(make_source(X[:2], Classes(np.array([0, 1]), names)))
    with pytest.raises(ArgumentError) as caught:
        later(form, X[:2], np.array(new))
    assert caught.value.message == "`y` must say whether it has classes or their numbers, which differ."
    assert caught.value.received.startswith(f"numbers or logical values, where the classes are '{names[0]}'")
    assert caught.value.fix == "Pass the classes as text, or as a factor where the training had one."
    _, found = later(form, X[:2], np.array(names[:2])[::-1])
    assert found.tolist() == [1, 0]


@pytest.mark.parametrize("names", [("0", "1"), ("FALSE", "TRUE"), ("no", "yes")])
def test_numbers_of_classes_are_taken_where_no_class_is_another_number(names):
    form = form_of(make_source(X[:2], Classes(np.array([0, 1]), names)))
    _, found = later(form, X[:2], np.array([1, 0]))
    assert found.tolist() == [1, 0]


def test_a_factor_of_numbers_stands_for_these_numbers():
    form = form_of(make_source(X, np.array([0, 1, 2, 1])))
    _, found = later(form, X[:2], Classes(np.array([1, 0]), ("0", "2")))
    assert found.tolist() == [2, 0]
    with pytest.raises(ArgumentError, match="`y` must be of the type that `y` of the training") as caught:
        later(form, X[:2], Classes(np.array([1, 0]), ("cat", "dog")))
    assert caught.value.received == "the classes 'cat', 'dog', where it was numbers"


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


def test_text_targets_of_files_are_matched(tmp_path):
    import tfdistr

    def rows(*kinds):
        file = tmp_path / f"{'-'.join(kinds)}.csv"
        file.write_text("a,kind\n" + "".join(f"{at},{kind}\n" for at, kind in enumerate(kinds)))
        return tfdistr.load_dataset("csv", files=str(file), target="kind")

    form = form_of(rows("owl", "cat", "dog"))
    assert (form.targets, form.levels) == (True, {"": ("cat", "dog", "owl")})
    assert form_of(make_source(rows("owl", "dog"), form=form)) == Form(("a",), True, form.levels, 2)
    assert make_source(rows("owl", "dog"), form=form).arrays()[1].tolist() == [2, 1]
    _, found = later(form, np.ones((2, 1)), np.array(["owl", "cat"]))
    assert found.tolist() == [2, 0]
    assert form.weights({"owl": 3.0}) == {2: 3.0}
    with pytest.raises(ArgumentError, match=r"`x` must have the classes of the training\.") as caught:
        make_source(rows("owl", "fox"), form=form)
    assert caught.value.received == "'fox', where the classes are 'cat', 'dog', 'owl'"
    numbers = Form(targets=True)
    with pytest.raises(ArgumentError, match="where it was numbers"):
        make_source(rows("owl", "fox"), form=numbers)


def test_classes_of_a_folder_of_images_are_matched(tmp_path):
    import tensorflow as tf

    import tfdistr

    for name in ("3", "7"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.png").write_bytes(tf.io.encode_png(np.zeros((2, 2, 3), np.uint8)).numpy())
    folder = tfdistr.load_dataset("image_folder", files=tmp_path)
    assert (folder.class_names, folder.arrays()[1].tolist()) == (("3", "7"), [0, 1])
    assert form_of(folder) == Form(None, True, {"": ("3", "7")}, 2)
    for trained in ({"": tuple("01234567")}, {}):
        source = make_source(folder, form=Form(targets=True, levels=trained))
        assert source.arrays()[1].tolist() == [3, 7]
    assert make_source(folder, form=Form()).arrays()[1].tolist() == [0, 1]


def batches(*made: object, form: Form | None = None, pull: bool = True) -> FedBatches:
    source = (lambda: Pull(made[0], iter([*made[1:], None]).__next__)) if pull else (lambda: iter(made))
    context = WorkerContext(1, 0, None, 1, shuffle=False)
    return make_data(source, context, name="x", form=form).dataset


FIRST = (Matrix(X[:2], ("a", "b", "c")), Classes(np.array([0, 1]), ("cat", "dog")))


@pytest.mark.parametrize("pull", [True, False])
def test_later_batches_match_the_first_one(pull):
    second = (Matrix(X[:2, ::-1], ("c", "b", "a")), Classes(np.array([0, 0]), ("dog",)))
    found = batches(FIRST, second, pull=pull)
    assert found.form == Form(("a", "b", "c"), True, {"": ("cat", "dog")})
    (x, y), (other_x, other_y) = found
    np.testing.assert_array_equal(x, other_x)
    assert (y.numpy().tolist(), other_y.numpy().tolist()) == ([0, 1], [1, 1])


def test_batches_match_the_training():
    trained = form_of(make_source(Matrix(X, ("c", "b", "a")), Y))
    ((x, y),) = batches((FIRST[0], Classes(np.array([1, 0]), ("dog", "owl"))), form=trained)
    np.testing.assert_array_equal(x, X[:2, ::-1])
    assert y.numpy().tolist() == [2, 1]
    files = batches(FIRST, form=Form(("b", "a")))  # whose classes are not known
    assert files.form == Form(("b", "a"), True, {"": ("cat", "dog")})
    later_class = (FIRST[0], Classes(np.array([0, 0]), ("fox",)))
    with pytest.raises(ArgumentError) as caught:
        list(batches(FIRST, FIRST, later_class))
    assert caught.value.received == "'fox', where the classes are 'cat', 'dog'"


def test_examples_match_the_form_of_batches():
    learned = Form(("c", "b", "a"), True, {"": ("owl", "dog", "cat"), "['kind']": ("owl", "dog", "cat")})
    given = make_source(Matrix(X, ("a", "b", "c")), {"kind": Y, "size": np.ones(4)})
    found = given.matched(learned, "validation_data")
    np.testing.assert_array_equal(found.parts[0], X[:, ::-1])
    assert found.parts[1]["kind"].tolist() == [2, 1, 0, 1]
    assert Form.from_dict(json.loads(json.dumps(learned.to_dict()))) == learned


def test_an_only_column_is_the_target():
    form = form_of(make_source(X, Columns({"species": Y})))
    _, found = later(form, X[:2], Classes(np.array([1, 0]), ("dog", "owl")))
    assert found.tolist() == [2, 1]
    _, found = later(form, X[:1], Columns({"other": Classes(np.array([0]), ("owl",))}))
    assert found.tolist() == [[2.0]]

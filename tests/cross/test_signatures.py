"""The functions of R and Python have the same arguments, defaults, first sentences and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import jsonschema
import pytest
from kinds import KINDS
from signatures import (
    BULLET,
    REQUIRED,
    SCHEMA,
    Described,
    all_differences,
    differences,
    not_in,
    not_needed,
    of_python,
    part_of,
    read_r,
    table,
    without_row,
)

import tfdistr

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def said():
    return read_r()


@pytest.fixture(scope="module")
def found(said):
    return all_differences(tfdistr, said, table())


def as_lines(differences):
    return "\n".join(map(json.dumps, differences))


def test_all_differences_are_in_the_table(found):
    left = not_in(table(), found)
    assert not left, f"R and Python differ:\n{as_lines(left)}"


def test_each_entry_of_the_table_is_a_difference(found):
    left = not_needed(table(), found)
    assert not left, f"These are no differences of R and Python:\n{as_lines(left)}"


def test_an_error_of_each_kind_has_its_class_in_r(said):
    for kind in KINDS.keys() - {"error"}:
        assert said["classes"][kind] == [f"tfdistr_error_{kind}", "tfdistr_error"]
    assert said["classes"]["error"] == ["tfdistr_error"]


# --- The comparison can fail


def train(model, x=None, *, workers=(1, 2), verbose=True, **options):
    """Train a model. It has more sentences.

    Args:
        model: ValueError: is no error here.

    Raises:
        ArgumentError: An argument
            is wrong.
        DataShardError: The data is wrong.

    Example:
        >>> 1 + 1
    """


PYTHON = of_python(train)
R = Described(
    {"model": REQUIRED, "x": None, "...": REQUIRED, "workers": [1, 2], "verbose": True},
    "train a model", frozenset({"ArgumentError", "DataShardError"}),
)  # fmt: skip


def test_what_python_says():
    assert PYTHON.sentence == "Train a model."
    assert list(PYTHON.arguments) == ["model", "x", "...", "workers", "verbose"]
    assert PYTHON.errors == {"ArgumentError", "DataShardError"}


def arguments(**values):
    return {name.replace("dots", "..."): value for name, value in values.items()}


def test_the_same_is_no_difference():
    assert differences("train", R, PYTHON) == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            arguments(model=REQUIRED, x=None, dots=REQUIRED, workers=[1, 2]),
            {"what": "argument", "python": "verbose"},
        ),
        (
            arguments(model=REQUIRED, x=None, dots=REQUIRED, workers=[1, 2], verbose=True, seed=None),
            {"what": "argument", "r": "seed"},
        ),
        (
            arguments(model=REQUIRED, newdata=None, dots=REQUIRED, workers=[1, 2], verbose=True),
            {"what": "argument", "r": "newdata", "python": "x"},
        ),
        (
            arguments(model=REQUIRED, x=None, workers=[1, 2], verbose=True),
            {"what": "argument", "python": "..."},
        ),
        (
            arguments(model=REQUIRED, x=None, dots=REQUIRED, verbose=True, workers=[1, 2]),
            {
                "what": "order",
                "r": ["model", "x", "...", "verbose", "workers"],
                "python": ["model", "x", "...", "workers", "verbose"],
            },
        ),
        (
            arguments(model=REQUIRED, dots=REQUIRED, x=None, workers=[1, 2], verbose=True),
            {
                "what": "order",
                "r": ["model", "...", "x", "workers", "verbose"],
                "python": ["model", "x", "...", "workers", "verbose"],
            },
        ),
        (
            arguments(model=REQUIRED, x=0, dots=REQUIRED, workers=[1, 2], verbose=True),
            {"what": "default", "argument": "x", "r": 0, "python": None},
        ),
        (
            arguments(model=REQUIRED, x=REQUIRED, dots=REQUIRED, workers=[1, 2], verbose=True),
            {"what": "default", "argument": "x", "r": REQUIRED, "python": None},
        ),
        (
            arguments(model=REQUIRED, x=None, dots=REQUIRED, workers=[1, 3], verbose=True),
            {"what": "default", "argument": "workers", "r": [1, 3], "python": [1, 2]},
        ),
        (
            arguments(model=REQUIRED, x=None, dots=REQUIRED, workers=1, verbose=True),
            {"what": "default", "argument": "workers", "r": 1, "python": [1, 2]},
        ),
        (
            arguments(model=REQUIRED, x=None, dots=REQUIRED, workers=[1, 2], verbose=1),
            {"what": "default", "argument": "verbose", "r": 1, "python": True},
        ),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if "what" in value else "",
)
def test_other_arguments_are_a_difference(changed, expected):
    found = differences("train", replace(R, arguments=changed), PYTHON)
    assert found == [{"of": "train", **expected}]


def test_numbers_of_r_have_no_type():
    one = Described({"seconds": 30}, "wait")
    other = Described({"seconds": 30.0}, "wait")
    assert differences("wait", one, other) == []


def test_an_argument_with_another_name_and_default_is_two_differences():
    one, other = Described({"newdata": 1}, "predict"), Described({"x": 2}, "predict")
    assert [one["what"] for one in differences("predict", one, other)] == ["argument", "default"]


def test_r_may_take_by_place_what_python_takes_by_name():
    python = of_python(lambda workers, *, ps=0: None)
    assert list(python.arguments) == ["workers", "...", "ps"]
    of_r = Described({"workers": REQUIRED, "ps": 0}, "")
    assert differences("local_cluster", of_r, python) == []
    before = Described({"workers": REQUIRED, "ps": 0, "...": REQUIRED}, "")
    assert [one["what"] for one in differences("local_cluster", before, python)] == ["order"]


def test_only_a_method_of_a_generic_has_dots_that_python_lacks():
    python, of_r = Described({}, "plot"), Described({"...": REQUIRED}, "plot")
    assert differences("plot", replace(of_r, of_generic=True), python) == []
    assert differences("plot", of_r, python) == [{"of": "plot", "what": "argument", "r": "..."}]


def test_another_sentence_is_a_difference():
    found = differences("train", replace(R, sentence="Train models."), PYTHON)
    assert found == [
        {"of": "train", "what": "sentence", "r": "Train models.", "python": "Train a model."},
    ]


def test_other_errors_are_differences():
    found = differences("train", replace(R, errors=frozenset({"ArgumentError", "JobStoppedError"})), PYTHON)
    assert found == [
        {"of": "train", "what": "error", "r": "JobStoppedError"},
        {"of": "train", "what": "error", "python": "DataShardError"},
    ]


def test_what_a_page_of_several_functions_says_of_one():
    items = ["Both.\n", " `one()`: makes\none. More.\n", " `two()`, `three()` and\n`four()`: count.", " End."]
    text = BULLET.join(items)
    assert part_of("one", text, "else") == "makes one. More."
    assert part_of("two", text, "else") == part_of("four", text, "else") == "count."
    assert part_of("five", text, "else") == ""
    assert part_of("five", f"{BULLET} `a_class`: no function.", "else") == "else"


def test_the_table_lists_differences_and_nothing_else():
    name = {"what": "name", "r": "print.tfdistr_fit"}
    argument = {"what": "argument", "of": "doctor", "python": "rscript"}
    listed = [{"what": "name", "r": "print.*", "why": "..."}, {**argument, "why": "..."}]
    assert not_in(listed, [name, argument]) == not_needed(listed, [name, argument]) == []
    assert not_needed(listed, [name]) == listed[1:]
    others = [
        {"what": "name", "r": "printed"},
        {"what": "name", "python": "print.tfdistr_fit"},
        {**argument, "of": "distribute"},
        {**argument, "r": "script"},
        {"what": "default", "of": "doctor", "argument": "timeout", "r": True, "python": 2},
    ]
    listed.append({**others[-1], "r": 1, "why": "..."})
    assert not_in(listed, others) == others
    assert not_needed(listed, others) == listed


def test_names_that_one_language_has_are_differences():
    page = {"name": "one", "aliases": ["one", "two"], "title": "One", "description": "", "errors": ""}
    said = {"exports": {"one": [], "two": []}, "methods": {"print.tfdistr_fit": []}, "pages": [page]}
    result = type("Result", (), {"__doc__": "A result.", "rows": lambda self: []})
    module = SimpleNamespace(
        __all__=["one", "three"], one=one, three=one, Comparison=result, Diagnosis=object, FitResult=object
    )
    found = [found for found in all_differences(module, said, []) if found["what"] == "name"]
    assert found == [
        {"what": "name", "r": "print.tfdistr_fit"},
        {"what": "name", "r": "two"},
        {"what": "name", "python": "three"},
        {"what": "name", "python": "testing.assert_same_fit"},
        {"what": "name", "python": "Comparison.rows"},
    ]


def one():
    """One."""


@pytest.mark.parametrize(
    "entry",
    [
        {"what": "name", "r": "one"},
        {"what": "name", "r": "one", "why": ""},
        {"what": "name", "why": "no name"},
        {"what": "argument", "r": "x", "why": "no function"},
        {"what": "default", "of": "one", "r": 1, "python": 2, "why": "no argument"},
        {"what": "other", "of": "one", "r": 1, "why": "no such difference"},
        {"what": "sentence", "of": "one", "r": "One", "why": "no sentence of Python"},
    ],
)
def test_the_schema_refuses_entries_that_say_too_little(entry):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate([entry])


def test_functions_without_a_row():
    assert without_row("python") == {"kubernetes_manifests", "r_function", "testing.assert_same_fit"}

"""Functions of Python files, which R names by python_function()."""

import os
import pickle
import sys
import traceback
from pathlib import Path

import cloudpickle
import pytest

from tfdistr.errors import ArgumentError
from tfdistr.training.job_arguments import make_job
from tfdistr.utils.function_files import PythonFunction, python_function


def message(call) -> str:
    with pytest.raises(ArgumentError) as raised:
        call()
    return str(raised.value)


@pytest.fixture
def file(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path / "model.py"


def test_the_file_is_imported_once_as_a_module_of_its_own(file):
    file.with_name("beside_it.py").write_text("UNITS = 7")
    file.write_text("import beside_it\nmade = []\ndef build(): made.append(1); return beside_it.UNITS, made")
    function = python_function(file, "build")
    assert "beside_it" not in sys.modules, "the file is parsed, not run"
    assert function() == (7, [1])
    again = pickle.loads(pickle.dumps(function))
    assert again == function
    assert again() == (7, [1, 1])
    assert "model" not in sys.modules
    del sys.modules["beside_it"]


def test_its_classes_go_to_processes_that_do_not_have_the_module(file):
    file.write_text("class Layer:\n    units = 3\ndef build(): return Layer()")
    made = python_function(file, "build")()
    sent = cloudpickle.dumps(made)
    del sys.modules[type(made).__module__]
    assert cloudpickle.loads(sent).units == 3


def test_errors_show_the_file_and_the_line(file):
    file.write_text("\n\ndef build():\n    return 1 / 0\n")
    with pytest.raises(ZeroDivisionError) as raised:
        python_function(file, "build")()
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (last.filename, last.lineno, last.line) == (str(file), 4, "return 1 / 0")


def test_an_import_that_fails_is_tried_again(file, monkeypatch):
    file.write_text("import os\nos.environ['UNITS_OF_TEST']\ndef build(): return 1")
    function = python_function(file, "build")
    with pytest.raises(KeyError, match="UNITS_OF_TEST"):
        function()
    monkeypatch.setenv("UNITS_OF_TEST", "1")
    assert function() == 1


def test_the_file_must_be_there(file):
    assert f"Received: {file}: no such file" in message(lambda: python_function(file, "build"))
    assert f"Received: {file.parent}: a folder\n" in message(lambda: python_function(file.parent, "build"))
    assert "Received: a list of length 0\n" in message(lambda: python_function([], "build"))


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("x = 1\ndef build(:\n", ", line 2: invalid syntax"),
        ("x = '\0'", ": source code string cannot contain"),
    ],
)
def test_the_file_must_have_no_syntax_error(file, code, place):
    file.write_text(code)
    assert f"Received: {file}{place}" in message(lambda: python_function(file, "build"))


def test_the_name_must_be_text(file):
    file.write_text("")
    assert "Received: a text ('')" in message(lambda: python_function(file, ""))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def other(): pass\nclass Other: pass", " makes the functions 'other', 'Other'"),
        ("other = 1", " makes no function"),
        ("def other():\n    def build(): pass", " makes the functions 'other'"),
        ("\nbuild = 3", ", line 2, makes a number (3)"),
        ("build: str = 'text'", ", line 1, makes a text ('text')"),
    ],
)
def test_the_file_must_make_the_function(file, code, found):
    file.write_text(code)
    assert f"Received: 'build', where {file}{found}" in message(lambda: python_function(file, "build"))


@pytest.mark.parametrize(
    "code",
    [
        "if True:\n    def build(): return 2", "from functools import partial as build", "import os as build",
        "build = lambda x=1: x", "build, other = print, 1",
        "try:\n    import x\nexcept E:\n    build = print",
        "from os import *", "exec('build = print')", "class build: pass", "build: object = print",
        "globals()['build'] = print",
    ],
)  # fmt: skip
def test_what_parsing_cannot_know_is_left_to_the_worker(file, code):
    file.write_text(code)
    assert python_function(file, "build").required == ()


@pytest.mark.parametrize(
    ("made", "found"),
    [("build = int('3')", "a number (3)"), ("exec('other = 1')", "nothing of this name")],
)
def test_the_worker_refuses_what_is_no_function(file, made, found):
    file.write_text(made)
    assert f"Received: 'build', where {file} makes {found}" in message(python_function(file, "build"))


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [("a, b=1", "'a'"), ("a, /, b, *c, d, e=2, **f", "'a', 'b', 'd'"), ("*a, b=1, **c", "")],
)
@pytest.mark.parametrize("form", ["def build({}): pass", "build = lambda {}: 1"])
def test_a_model_function_has_no_arguments(file, arguments, needed, form):
    file.write_text(form.format(arguments))
    function = python_function(file, "build")
    if not needed:
        make_job(function, [[1.0]], [1.0], num_workers=1)
        return
    assert f"Received: 'build' of {file}, which needs {needed}" in message(
        lambda: make_job(function, [[1.0]], [1.0], num_workers=1)
    )


def test_a_decorator_may_give_the_arguments(file):
    file.write_text("@decorated\ndef build(a): pass")
    assert python_function(file, "build").required == ()


def test_the_file_must_stay_as_it_is(file):
    file.write_text("def build(): return 1")
    function = python_function(os.path.relpath(file), "build")
    assert function.file == str(file)
    file.write_text("def build(): return 2")
    assert f"Received: {file}, which has changed since 'build' was named\n" in message(function)
    file.unlink()
    assert f"Received: {file}: No such file or directory\n" in message(function)
    assert isinstance(function, PythonFunction)

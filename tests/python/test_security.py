"""Each promise of SECURITY.md names tests that exist."""

import ast
import functools
import re

import pytest
from paths import ROOT

PAGE = (ROOT / "SECURITY.md").read_text()
_TABLE = PAGE.partition("## Which test keeps which promise\n")[2]
ROWS = re.findall(r"^\| (?!Promise )([^|]+) \| ([^|]+) \|$", _TABLE, re.MULTILINE)


@functools.cache
def named_in(file: str) -> set[str]:
    """The names of the tests in a file."""
    path = ROOT / file if file.startswith("tests/") else ROOT / "tests" / "python" / file
    tree = ast.parse(path.read_text())
    functions = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
    return {name for name in functions if name.startswith("test_")}


def test_there_is_a_table() -> None:
    assert len(ROWS) > 30
    # A row of another form would be left out.
    assert len(ROWS) == _TABLE.count("\n| ") - 1
    assert len({promise for promise, _ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("promise", "tests"), ROWS, ids=[promise for promise, _ in ROWS])
def test_a_promise_has_tests(promise: str, tests: str) -> None:
    named = re.findall(r"`([\w./]+\.py)::(\w+)`", tests)
    assert ", ".join(f"`{file}::{name}`" for file, name in named) == tests
    for file, name in named:
        assert name in named_in(file), f"{promise}: {file} has no {name}"

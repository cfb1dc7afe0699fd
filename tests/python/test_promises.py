"""Each promise of a page with a table of promises names tests that exist."""

import ast
import functools
import re

import pytest
from paths import ROOT

#: The pages, and how many promises each has at least.
PAGES = {"SECURITY.md": 30, "docs/recovery.md": 15, "docs/failures.md": 15, "docs/stores.md": 10}
_TITLE = "## Which test keeps which promise\n"
TABLES = {page: (ROOT / page).read_text().partition(_TITLE)[2] for page in PAGES}
ROWS = [
    (page, *row)
    for page, table in TABLES.items()
    for row in re.findall(r"^\| (?!Promise )([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
]


@functools.cache
def named_in(file: str) -> set[str]:
    """The names of the tests in a file."""
    path = ROOT / file if file.startswith("tests/") else ROOT / "tests" / "python" / file
    tree = ast.parse(path.read_text())
    functions = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
    return {name for name in functions if name.startswith("test_")}


@pytest.mark.parametrize("page", PAGES)
def test_there_is_a_table(page: str) -> None:
    promises = [promise for of, promise, _ in ROWS if of == page]
    assert len(promises) >= PAGES[page]
    # A row of another form would be left out.
    assert len(promises) == TABLES[page].count("\n| ") - 1
    assert len(set(promises)) == len(promises)


@pytest.mark.parametrize(("page", "promise", "tests"), ROWS, ids=[promise for _, promise, _ in ROWS])
def test_a_promise_has_tests(page: str, promise: str, tests: str) -> None:
    named = re.findall(r"`([\w./]+\.py)::(\w+)`", tests)
    assert ", ".join(f"`{file}::{name}`" for file, name in named) == tests
    for file, name in named:
        assert name in named_in(file), f"{page}: {promise}: {file} has no {name}"

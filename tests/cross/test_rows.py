"""Each row of rows/ gives the same in Python, in R, and in each through the other."""

import re
from typing import Any

import pytest
from both_process import Both
from rows import HERE, calls, difference, rows, ways
from signatures import without_row

import tfdistr

pytestmark = pytest.mark.timeout(600)


def compare(both: Both, row: dict[str, Any]) -> None:
    expected, *others = [(way, both.ask(row, way)) for way in ways(row)]
    assert "broken" not in expected[1], expected[1]["broken"]
    assert expected[1].get("error", {}).get("class") == row.get("error"), expected
    for way, observed in others:
        assert "broken" not in observed, f"{way}: {observed['broken']}"
        wanted = expected[1]
        if way != "python_from_r" and "in_r" in row:
            wanted = {"error": {**wanted["error"], **row["in_r"]}}
        differs = difference(wanted, observed, row.get("tolerance", 0.0))
        assert differs is None, f"{expected[0]} and {way} differ at {differs}"


def test_every_function_has_a_row():
    namespace = HERE.parents[1].joinpath("NAMESPACE").read_text()
    exports = set(re.findall(r"^export\((\w+)\)$", namespace, re.MULTILINE))
    all_rows = [row.values[0] for name in ("values", "errors", "jobs") for row in rows(name)]
    called = set().union(*map(calls, all_rows))
    assert exports - called == without_row("r")
    functions = {name for name in tfdistr.__all__ if name[0].islower()}
    assert functions - called == without_row("python") & functions


@pytest.mark.parametrize("row", rows("values"))
def test_values(both, row):
    compare(both, row)


@pytest.mark.parametrize("row", rows("errors"))
def test_errors(both, row):
    compare(both, row)


@pytest.mark.parametrize("row", rows("jobs"))
def test_jobs(both, row):
    compare(both, row)

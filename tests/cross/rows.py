"""The rows of the harness: what they are, and how two observations of one differ."""

import itertools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

HERE = Path(__file__).parent
WAYS = ("python", "r", "r_from_python", "python_from_r")
SCHEMA = json.loads((HERE / "row.schema.json").read_text())


def rows(name: str) -> list[Any]:
    """The rows of a file, as parameters of a test. The slow ones have two of their ways each, in turn."""
    read = json.loads((HERE / "rows" / f"{name}.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(read)
    for turn, row in enumerate(row for row in read if row.get("slow")):
        pairs = list(itertools.combinations(ways(row), 2))
        row["ways"] = pairs[turn % len(pairs)]
    slow = pytest.mark.slow(reason="trains in two of the four ways")
    return [pytest.param(row, id=row["name"], marks=slow if row.get("slow") else ()) for row in read]


def ways(row: dict[str, Any]) -> list[str]:
    """The ways of a row; the first is what the others are compared with."""
    listed = row.get("ways", WAYS)
    return [listed] if isinstance(listed, str) else list(listed)


def calls(expression: Any) -> set[str]:
    """The functions that an expression calls."""
    if isinstance(expression, dict):
        inner = set().union(*map(calls, expression.values()))
        return inner | {expression["call"]} if isinstance(expression.get("call"), str) else inner
    return set().union(*map(calls, expression)) if isinstance(expression, list) else set()


def difference(one: Any, other: Any, tolerance: float, path: str = "") -> str | None:
    """Where two observations differ, if they do by more than ``tolerance``."""
    if isinstance(one, dict) and isinstance(other, dict):
        if set(one) != set(other):
            return f"{path}: {sorted(one)} and {sorted(other)}"
        parts = [difference(one[key], other[key], tolerance, f"{path}.{key}") for key in one]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        parts = [difference(*pair, tolerance, f"{path}[{place}]") for place, pair in pairs]
    elif _are_numbers(one, other):
        parts = [None if abs(one - other) <= tolerance else f"{path}: {one!r} and {other!r}"]
    else:
        parts = [None if type(one) is type(other) and one == other else f"{path}: {one!r} and {other!r}"]
    return next((part for part in parts if part), None)


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)

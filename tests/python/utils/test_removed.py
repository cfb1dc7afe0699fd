"""The arguments that are gone: each is refused with what to write instead, and the page lists all."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path
from typing import Any

import pytest

import tfdistr
from tfdistr.errors import ArgumentError
from tfdistr.utils.removed import REMOVED, REMOVED_VALUES, WITHOUT_CLUSTER, refuse_unknown

ROOT = Path(__file__).parents[3]
NAMES = {name: getattr(tfdistr, name) for name in tfdistr.__all__}
GONE = [(function, name) for function, table in REMOVED.items() for name in table]


@pytest.mark.parametrize(("function", "name"), GONE)
def test_an_argument_that_is_gone_names_what_to_write(function: str, name: str) -> None:
    assert name not in inspect.signature(getattr(tfdistr, function)).parameters
    with pytest.raises(ArgumentError) as caught:
        getattr(tfdistr, function)("x", **{name: 7})
    lines = str(caught.value).splitlines()
    assert lines[:2] == [f"{function}() has no argument `{name}` any more.", f"Received: {name}=7"]
    assert lines[2] == f"Fix: Pass {REMOVED[function][name].format(value=7)}."


@pytest.mark.parametrize(("function", "name"), GONE)
def test_what_to_write_is_accepted(function: str, name: str) -> None:
    values = {
        "scale_learning_rate": '"sqrt"', "communication": '"ring"', "gradient_dtype": '"bfloat16"',
        "update": '"sync"', "placement": '{"first": "cpu:0"}', "devices": '["cpu:0"]', "device": '"cpu:0"',
    }  # fmt: skip
    for way in REMOVED[function][name].format(value=values.get(name, "3")).split(WITHOUT_CLUSTER):
        argument, _, code = way.partition("=")
        value = eval(code, dict(NAMES))
        assert argument in inspect.signature(getattr(tfdistr, function)).parameters
        if function in ("slurm_cluster", "ray_cluster"):
            arguments: dict[str, Any] = {"nodes": 1} if function == "slurm_cluster" else {}
            assert getattr(tfdistr, function)(**arguments, **{argument: value}).workers == 3


@pytest.mark.parametrize("value", [value for table in REMOVED_VALUES.values() for value in table])
def test_a_value_that_is_gone_is_refused(value: str) -> None:
    function = next(name for name, table in REMOVED_VALUES.items() if value in table)
    first = "None, None, " if function == "compare_strategies" else ""
    with pytest.raises(ArgumentError):
        eval(f"{function}({first}{value})", {"devices": ["cpu:0"], **NAMES})


def test_unknown_arguments_of_r_functions() -> None:
    with pytest.raises(ArgumentError, match="Fix: Write epochs"):
        refuse_unknown("distributed_fit", {"epoch": 3}, ["x", "epochs"])
    with pytest.raises(ArgumentError, match="Its arguments are x, epochs"):
        refuse_unknown("distributed_fit", {"zzz": 3}, ["x", "epochs"])
    with pytest.raises(ArgumentError, match=r"Fix: Pass workers=3\."):
        refuse_unknown("ray_cluster", {"num_workers": 3}, ["workers"])
    with pytest.raises(ArgumentError, match=r"Fix: Pass gpus_per_worker=2\."):
        refuse_unknown("tfdistr_kubernetes", {"gpus": 2}, ["gpus_per_worker"])
    with pytest.raises(ArgumentError, match="Fix: Write gpus_per_worker"):
        refuse_unknown("local_cluster", {"gpus": 2}, ["ps", "gpus_per_worker"])


def test_the_page_lists_all() -> None:
    page = ROOT / "docs" / "upgrading.md"
    tool = runpy.run_path(str(ROOT / "tools" / "upgrading.py"))
    text = page.read_text(encoding="utf-8")
    assert tool["updated"](text) == text

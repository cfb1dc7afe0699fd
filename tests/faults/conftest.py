"""What came of each fault is shown at the end: who said what, after how many seconds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
ROWS: list[tuple[str, str, str, str]] = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == FOLDER:
            item.add_marker("slow")


@pytest.fixture
def note() -> Callable[..., None]:
    """A function that notes a row: the fault, what carries the collectives, who says what, and when."""

    def add(fault: str, carrier: str, said: list[Any], *, when: bool = True) -> None:
        # Where the fault is one of the worker's own, from the first that has said something.
        first = 0.0 if when else min(one.seconds for one in said if one.text is not None)
        for index, one in enumerate(said):
            if one.text is None:
                text = "(ended)"
            else:
                lines = one.text.splitlines()
                text = next((line for line in lines if line.startswith("Received: ")), lines[0])
            who = f"worker {index}" if len(said) > 1 else "the caller"
            seconds = "" if one.text is None else f"{one.seconds - first:5.1f} s"
            what = (fault, carrier) if index == 0 else ("", "")
            ROWS.append((*what, f"{who:10} {seconds:7}", text))

    return add


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not ROWS:
        return
    terminalreporter.section("faults: who saw what, after how many seconds")
    for fault, carrier, who, text in ROWS:
        terminalreporter.write_line(f"{fault:32} {carrier:10} {who}  {text[:150]}")

"""Functions for the exit of a process, also without an exit of Python: R skips it since reticulate 1.43."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any

_functions: list[Callable[[], Any]] = []


def register(function: Callable[[], Any]) -> Callable[[], Any]:
    """Call ``function`` when this process ends; functions that are registered later are called before it."""
    _functions.append(function)
    return atexit.register(function)


def unregister(function: Callable[[], Any]) -> None:
    """Do not call ``function`` when this process ends."""
    _functions[:] = [other for other in _functions if other != function]
    atexit.unregister(function)


def run() -> None:
    """Call all functions now, and not again."""
    while _functions:
        function = _functions.pop()
        atexit.unregister(function)
        function()

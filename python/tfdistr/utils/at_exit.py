"""Functions for the exit of a process, also without an exit of Python: R skips it since reticulate 1.43."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

_functions: list[Callable[[], Any]] = []
_failed: list[bool] = []


def register(function: Callable[[], object]) -> Callable[[], object]:
    """Call ``function`` when this process ends; functions that are registered later are called before it."""
    if not _functions:
        atexit.unregister(_exit_if_failed)
        atexit.register(_exit_if_failed)  # first, so that it is called last
    _functions.append(function)
    return atexit.register(function)


def unregister(function: Callable[[], object]) -> None:
    """Do not call ``function`` when this process ends."""
    _functions[:] = [other for other in _functions if other != function]
    atexit.unregister(function)


def run_at_exit() -> None:
    """Call all functions now, and not again."""
    while _functions:
        function = _functions.pop()
        atexit.unregister(function)
        function()
    _exit_if_failed()


def fail() -> None:
    """Exit with status 1 after all functions. A function that is called at exit calls it."""
    _failed.append(True)


def _exit_if_failed() -> None:
    if not _failed:
        return
    # Neither Python nor R can change its status any more. R would remove its folder later.
    if "rpytools" in sys.modules and "R_SESSION_TMPDIR" in os.environ:
        shutil.rmtree(os.environ["R_SESSION_TMPDIR"], ignore_errors=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)

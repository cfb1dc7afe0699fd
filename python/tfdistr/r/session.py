"""Changes of an R session to this process: environment variables and import hooks."""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from typing import Any


def reload_environ() -> None:
    """Bring ``os.environ`` up to date with the environment of the process. Python reads it only once.

    R's ``Sys.setenv()`` changes the environment of the process. Python 3.14 has ``os.reload_environ()``.

    Example:
        >>> ctypes.CDLL(None).setenv(b"CHANGED_OUTSIDE", b"yes", 1)
        0
        >>> reload_environ()
        >>> os.environ["CHANGED_OUTSIDE"]
        'yes'
    """
    entries = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    # Read all entries before the first change, because a change may move the list.
    values = itertools.takewhile(bool, (entries[place] for place in itertools.count()))
    present = dict(value.split(b"=", 1) for value in values if value and b"=" in value)
    for name in os.environb.keys() - present.keys():
        del os.environb[name]
    for name, value in present.items():
        if os.environb.get(name) != value:
            os.environb[name] = value


_holding: list[Any] = []  # the loader, if actions wait now


def hold_import_hooks() -> None:
    """Let the actions wait from now on."""
    loader: Any = sys.modules.get("rpytools.loader")
    if not _holding and hasattr(loader, "_recursion_depth") and hasattr(loader, "_maybe_run_hooks"):
        loader._recursion_depth += 1
        _holding.append(loader)


def run_import_hooks() -> None:
    """Run the actions that have waited, and let no more wait."""
    if _holding:
        loader = _holding.pop()
        loader._recursion_depth -= 1
        loader._maybe_run_hooks()

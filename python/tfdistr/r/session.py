"""R and this process: what R changes in it as its caller, and its start here through rpy2.

The reticulate of an R in this process uses this Python: both sides share objects.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import shutil
import sys
from typing import Any

from tfdistr.errors import ArgumentError
from tfdistr.utils import at_exit


def reload_environ() -> None:
    """Bring ``os.environ`` up to date with the environment of the process. Python reads it only once.

    R's ``Sys.setenv()`` changes the environment of the process. Python 3.14 has ``os.reload_environ()``.
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


_NEEDS_R = (
    "R functions run in this process where it trains without `cluster`, or makes a model that Keras alone "
    "cannot make. It needs rpy2 for that."
)
# These variables are set in R alone: as Python variables they would also reach the workers. The R package
# registers R in this Python at its first use.
_BEGIN = """
Sys.setenv(R_HOME = {home})
Sys.setenv(RETICULATE_PYTHON = {python})
tfdistr:::core()
"""


def start_r() -> Any:
    """Start R and its package tfdistr, and return ``rpy2.robjects``."""
    before = set(os.environ)
    try:
        import rpy2.rinterface as interface
        import rpy2.robjects as objects
    except ImportError as error:
        raise ArgumentError(
            _NEEDS_R, received=f"{type(error).__name__}: {error}", fix="pip install 'tfdistr[r]'"
        ) from error
    except Exception as error:  # rpy2 raises many kinds where there is no R
        raise _unusable(error) from error
    # The end of an embedded R aborts or hangs once reticulate has been loaded.
    atexit.unregister(interface.endr)
    home = os.environ.get("R_HOME", "")  # rpy2 has set it
    for name in set(os.environ) - before:
        del os.environ[name]  # rpy2 has set it for this process; it is not for others
    try:
        at_exit.register(_RExit(objects))
        python = os.path.abspath(sys.executable)  # R finds the modules of a static Python by its full path
        quoted = {"python": python, "home": home}
        values = {name: objects.StrVector([value]).r_repr() for name, value in quoted.items()}
        objects.r(_BEGIN.format(**values))
    except Exception as error:
        raise _unusable(error) from error
    return objects


class _RExit:
    """The cleanup of R at exit: it removes R's temporary folder.

    Reticulate must also stop its thread, which would make R flush Python's output while Python exits.
    """

    def __init__(self, objects: Any) -> None:
        self._objects, self._folder, self._owner = objects, str(objects.r("tempdir()")[0]), os.getpid()

    def __call__(self) -> None:
        if os.getpid() == self._owner:  # not a fork
            self._objects.r("try(reticulate:::py_finalize(), silent = TRUE)")  # Python itself lives on
            shutil.rmtree(self._folder, ignore_errors=True)


def _unusable(error: Exception) -> ArgumentError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()
    return ArgumentError(
        "rpy2 cannot start R with the R package tfdistr in this process.",
        received=reason,
        fix="Run python -m rpy2.situation, and check R_LIBS for the libraries of R packages.",
    )

"""Whether this process is a session of the user, which lives on after an error, and what its signals do."""

from __future__ import annotations

import signal
import sys


class _Session:
    """The answer that the caller has set for this process."""

    lives_on: bool | None = None  # None: ask Python


def lives_on(session: bool) -> None:
    """Set whether this process is a session that lives on. R calls it, because there Python does not know."""
    _Session.lives_on = session


def ignore_sigpipe() -> None:
    """Make a write to a closed pipe or socket an error of the write, as in each process of Python.

    R calls this. R's handler of SIGPIPE raises an error of R, which jumps out of Python's code and out of its
    threads: the process ended with "stack smashing detected". Programs that Python starts have the default of
    the signal again.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def is_session() -> bool:
    """Return whether this process is a session that lives on after an error, and not a script."""
    if _Session.lives_on is not None:
        return _Session.lives_on
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or _in_ipython()


def _in_ipython() -> bool:
    """Return whether IPython runs this process; scripts may import it, too."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython is not None and get_ipython() is not None

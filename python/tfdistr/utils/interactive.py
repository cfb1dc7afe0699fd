"""The detection of interactive sessions, which live on after an error, and their signals."""

from __future__ import annotations

import signal
import sys


class _Session:
    """The answer that the caller has set for this process."""

    lives_on: bool | None = None  # None: ask Python


def lives_on(session: bool) -> None:
    """Set whether this process is a session that lives on. R calls it, because Python cannot detect it."""
    _Session.lives_on = session


def ignore_sigpipe() -> None:
    """Make a write to a closed pipe or socket an error of the write, as in each Python process.

    R calls this. R's SIGPIPE handler raises an R error, which jumps out of Python's code and out of its
    threads: the process crashed with "stack smashing detected". Programs that Python starts have the default
    action of the signal.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def is_session() -> bool:
    """Return whether this process is a session that lives on after an error, and not a script."""
    if _Session.lives_on is not None:
        return _Session.lives_on
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or _in_ipython()


def _in_ipython() -> bool:
    """Return whether IPython runs this process; scripts may also import it."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython is not None and get_ipython() is not None

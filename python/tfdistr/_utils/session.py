"""Whether this process is a script, or a session of the user, which lives on after an error."""

from __future__ import annotations

import sys


class _Session:
    """The answer that the caller has set for this process."""

    lives_on: bool | None = None  # None: ask Python


def lives_on(session: bool) -> None:
    """Set whether this process is a session that lives on. R calls it, because there Python does not know."""
    _Session.lives_on = session


def is_session() -> bool:
    """Return whether this process is a session that lives on after an error, and not a script."""
    if _Session.lives_on is not None:
        return _Session.lives_on
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or _in_ipython()


def _in_ipython() -> bool:
    """Whether IPython runs this process; scripts may import it, too."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython is not None and get_ipython() is not None

"""Whether this process is a session of the user, which lives on after an error, or a script."""

from __future__ import annotations

import sys


class _Session:
    """What is known of this process."""

    lives_on: bool | None = None  # None where Python tells


def lives_on(session: bool) -> None:
    """Say whether this process is a session that lives on, where Python does not know: in R."""
    _Session.lives_on = session


def is_session() -> bool:
    """Whether this process is a session that lives on after an error, and no script."""
    if _Session.lives_on is not None:
        return _Session.lives_on
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or "IPython" in sys.modules

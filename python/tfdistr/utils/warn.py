"""The warnings of tfdistr: in the user's session, they are warnings of its language.

The core logs a warning with ``log.warning()``, wherever it is. In a session this becomes a warning of Python
or of R. In the process of a worker it becomes an event, and the session warns.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator

from tfdistr.errors import BatchLossWarning, TfdistrWarning
from tfdistr.utils.interrupts import defer_sigint

#: For ``log.warning(..., extra=NOTE)``: the record only reports progress, so it is shown as a line.
NOTE = {"is_note": True}

#: For ``log.warning(..., extra=ABOUT_BATCH)``: the warning has its own class.
ABOUT_BATCH = {"category": "batch_loss"}
_CLASSES = {"batch_loss": BatchLossWarning}

# A warning is about the code that called these functions.
_NOT_OF_USER = frozenset(("tfdistr", "logging", "keras", "tensorflow", "contextlib"))
_GENERATED = "__autograph_generated_file"  # the user cannot read what TensorFlow has made of a function


def warn(message: str, category: str | None = None, *, worker: int | None = None) -> None:
    """Warn the user, as Python does; ``worker`` is the index of the worker whose user code has warned."""
    given = _CLASSES.get(category or "", TfdistrWarning)
    warnings.warn(given(message, worker=worker), stacklevel=_level_of_user())


def _level_of_user() -> int:
    """Return the stack level of the user's code, counted from ``warn()``."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and (
        frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_OF_USER
        or _GENERATED in frame.f_code.co_filename
    ):
        frame, level = frame.f_back, level + 1
    return level


class Warnings(logging.Handler):
    """A handler that forwards the warnings that tfdistr logs in this process.

    Errors of `tell` pass through the call that has logged the warning.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        #: Called with the message of a warning, and its category if it has one.
        self.tell: Callable[..., object] = warn
        #: Called with the message of a note.
        self.note: Callable[[str], object] = _print
        #: Called with the message of a warning of the user's code.
        self.tell_of_user: Callable[[str], object] = warn

    def handle(self, record: logging.LogRecord) -> bool:
        """Forward a record; without the lock, because `tell` may call user code."""
        category = getattr(record, "category", None)
        send = self.note if getattr(record, "is_note", False) else self.tell
        send(record.getMessage(), *([category] if category else []))
        return True

    @contextlib.contextmanager
    def as_notes(self) -> Iterator[None]:
        """Show warnings as lines within the context, for a process that serves other processes only."""
        tell, self.tell = self.tell, lambda message, category=None: self.note(message)
        try:
            yield
        finally:
            self.tell = tell


def _print(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


#: The warnings of this process.
WARNINGS = Warnings()
logging.getLogger("tfdistr").addHandler(WARNINGS)


def warn_by(tell: Callable[..., object]) -> None:
    """Set the function that warns the user of this session. R calls it."""
    WARNINGS.tell = WARNINGS.tell_of_user = defer_sigint(tell)


def user_warned(message: str) -> None:
    """Forward a warning of the user's R code, in the process of a worker."""
    WARNINGS.tell_of_user(message)

"""What tfdistr tells the user while a case is trained: warnings and progress lines."""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import tfdistr

NOTE = "note"


class Said(NamedTuple):
    """One warning or progress line.

    Attributes:
        kind: Class of the warning, or "note" for a progress line.
        text: The message.
    """

    kind: str
    text: str

    @property
    def is_warning(self) -> bool:
        return self.kind != NOTE


class _Notes(logging.Handler):
    """Keeps the progress lines, which are no warnings of Python."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "is_note", False):
            self.texts.append(record.getMessage())


@contextlib.contextmanager
def listening() -> Iterator[list[Said]]:
    """Yield a list that holds what tfdistr has said when the context ends, with an error or without."""
    said: list[Said] = []
    notes, log = _Notes(), logging.getLogger("tfdistr")
    log.addHandler(notes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield said
        finally:
            log.removeHandler(notes)
            own = (warning for warning in caught if issubclass(warning.category, tfdistr.TfdistrWarning))
            said += [Said(warning.category.__name__, str(warning.message)) for warning in own]
            said += [Said(NOTE, text) for text in notes.texts]

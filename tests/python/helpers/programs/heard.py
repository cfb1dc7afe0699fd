"""What programs hear of tfdistr: its warnings and its errors."""

import logging
from collections.abc import Callable

from tfdistr.errors import TfdistrError


class Heard(logging.Handler):
    """Keeps the lines that tfdistr warns of from now on."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        logging.getLogger("tfdistr").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def take(self) -> list[str]:
        """The lines since it was asked last."""
        lines, self.lines = self.lines, []
        return lines


def refused(call: Callable[[], object]) -> list[str]:
    """The class, the message, the value and the fix of the error of a call."""
    try:
        call()
    except TfdistrError as error:
        return [type(error).__name__, error.message, error.received, error.fix]
    raise AssertionError("it was not refused")

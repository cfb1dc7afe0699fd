"""The standard output and standard error of a worker, which are its log, on a disk that may be full."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any

from tfdistr.supervision.events import EventWriter
from tfdistr.utils.disk import REFUSES


class _Log(io.FileIO):
    """The log of this process. A line that a full disk refuses is left out: it must not end the training.

    Args:
        descriptor: The open file.
        events: Tells the user.
    """

    def __init__(self, descriptor: int, events: EventWriter) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._events = events

    def write(self, data: Any) -> int:
        """Write bytes, or leave them out."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in REFUSES:
                raise
            self._events.tell_full()
            return memoryview(data).nbytes


def continue_without_log(events: EventWriter) -> None:
    """Make Python's standard output and standard error leave out what a full disk refuses.

    Args:
        events: Tells the user.
    """
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        before = getattr(sys, name)
        if type(before) is not io.TextIOWrapper or before.fileno() != descriptor:
            continue  # somebody else's
        with contextlib.suppress(OSError):
            before.flush()
        log = _Log(descriptor, events)
        unbuffered = isinstance(before.buffer, io.RawIOBase)
        setattr(sys, name, io.TextIOWrapper(
            log if unbuffered else io.BufferedWriter(log), before.encoding, before.errors,
            line_buffering=before.line_buffering, write_through=before.write_through,
        ))  # fmt: skip

"""The output of a program that starts workers: lines for this process, and a file to read afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from tfdistr.utils.log_tail import Lines

_CHUNK = 1 << 16
_SIZE = 1 << 20  # bytes that can wait while this process is paused


class ProgramOutput:
    """The output of a program, which says how its workers are.

    A pipe carries it, and not the file: on a full disk the launcher would hear nothing, and take its workers
    for lost.

    Args:
        log: The file, which is appended to.

    Attributes:
        writer: The end of the pipe for the program, which the caller closes once the program has it.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        reader, self.writer = os.pipe()
        os.set_blocking(reader, False)
        with contextlib.suppress(AttributeError, OSError):  # macOS; the limit of this user
            fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _SIZE)
        self._reader = os.fdopen(reader, "rb", buffering=0)
        self._lines = Lines()

    def lines(self, *, final: bool = False) -> list[str]:
        """Read the lines that were completed since the last call; see `Tail.lines`."""
        received = b""
        while not self._reader.closed and (chunk := self._reader.read(_CHUNK)) is not None:
            received += chunk
            if not chunk:
                self._reader.close()
        if received:
            with contextlib.suppress(OSError), self._log.open("ab") as log:  # it is only for the user
                log.write(received)
        return self._lines.take(received, final=final)

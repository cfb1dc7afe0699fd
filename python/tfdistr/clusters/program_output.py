"""The output of a program that starts workers: lines for this process, and a file to read afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import IO

from tfdistr.utils.log_tail import LineReader

_CHUNK = 1 << 16
_SIZE = 1 << 20  # bytes that can wait while this process is paused


class ProgramOutput:
    """The output of a program, with the messages of its workers.

    It comes through a pipe, not through the file: on a full disk the launcher would get no messages, and
    would consider its workers lost.

    Args:
        pipe: The end of the pipe for this process.
        log: A file for all output, which is appended to.
    """

    def __init__(self, pipe: IO[bytes] | None, log: Path | None = None) -> None:
        assert pipe is not None
        self._pipe, self._log, self._lines = pipe, log, LineReader()
        os.set_blocking(pipe.fileno(), False)
        if log:
            with contextlib.suppress(AttributeError, OSError):  # macOS; the limit of this user
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _SIZE)

    def lines(self, *, final: bool = False) -> list[str]:
        """Read the lines that were completed since the last call; see `Tail.lines`."""
        received = b""
        with contextlib.suppress(BlockingIOError):
            while not self._pipe.closed:
                chunk = os.read(self._pipe.fileno(), _CHUNK)
                received += chunk
                if not chunk:
                    self._pipe.close()
        if received and self._log:
            with contextlib.suppress(OSError), self._log.open("ab") as log:  # it is only for the user
                log.write(received)
        return self._lines.take(received, final=final)

    def close(self) -> None:
        """Stop reading: a process that the program has left may keep the pipe open."""
        self._pipe.close()

"""The reports of a worker's or a server's process to its launcher: start, log and end."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tfdistr.clusters.worker_process import scratch_path
from tfdistr.network.loopback import restore_preload
from tfdistr.supervision.events import EventWriter
from tfdistr.utils.disk import REFUSES
from tfdistr.utils.processes import die_with_parent
from tfdistr.utils.quiet import quiet_tensorflow
from tfdistr.utils.warn import WARNINGS


class _Log(io.FileIO):
    """The log of this process. A line that a full disk refuses is dropped: it must not end the training."""

    def __init__(self, descriptor: int, events: EventWriter) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._events = events

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in REFUSES:
                raise
            self._events.tell_full()
            return memoryview(data).nbytes


def continue_without_log(events: EventWriter) -> None:
    """Make Python's standard output and standard error drop what a full disk refuses."""
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


log = logging.getLogger("tfdistr")

#: A function that returns the class and the call stack of a foreign error; None for Python errors.
Foreign = Callable[[BaseException], tuple[str, str] | None]


#: Where R's calls begin, see r_error() of R.
_CALLS_OF_R = "R call stack (innermost last):"


def calls_of_r(text: str) -> str:
    """Return R's calls in the traceback that a worker has reported; empty if there are none."""
    _, mark, calls = text.partition(_CALLS_OF_R)
    return mark + calls


class ProcessOfJob:
    """This process, as its launcher sees it."""

    def __init__(self, events: EventWriter) -> None:
        self.events = events
        self._began = time.monotonic()

    def done(self, times: Mapping[str, float] | None = None) -> None:
        parts = {"times": dict(times)} if times else {}
        self.events.write("done", seconds=time.monotonic() - self._began, **parts)

    def failed(self, error: BaseException, *, peer: bool = False, foreign: Foreign | None = None) -> None:
        text = "".join(traceback.format_exception(error))
        name, language = type(error).__name__, "python"
        elsewhere = foreign(error) if foreign else None
        if elsewhere is not None:
            (name, calls), language = elsewhere, "r"
            text = f"{text}\n{calls}"
        self.events.write(
            "failed", error_type=name, message=str(error), traceback=text, language=language, peer=peer
        )
        with contextlib.suppress(OSError, ValueError):  # the user's code has closed it
            print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def process_of_job(run_dir: str, index: int, *, logs: bool = True) -> Iterator[ProcessOfJob]:
    """Run process ``index`` of the job in ``run_dir``: exit with the launcher, report to it, leave no file.

    With ``logs``, the process writes tfdistr's log into its output.
    """
    die_with_parent()
    restore_preload()
    quiet_tensorflow()
    events = EventWriter(run_dir, index)
    continue_without_log(events)
    if logs:
        _log_to(events)
    events.write("started", pid=os.getpid(), host=socket.gethostname())
    process = ProcessOfJob(events)
    # TensorFlow writes temporary files, which only the interpreter's shutdown would remove.
    scratch = scratch_path(run_dir, index)
    shutil.rmtree(scratch, ignore_errors=True)  # from an earlier process with this index
    scratch.mkdir(mode=0o700)
    tempfile.tempdir = str(scratch)
    try:
        yield process
    finally:
        tempfile.tempdir = None
        shutil.rmtree(scratch, ignore_errors=True)


def _log_to(events: EventWriter) -> None:
    """Write tfdistr's log into this worker's log; send all warnings to the launcher, which repeats them."""
    log.setLevel(logging.INFO)
    written = logging.StreamHandler()
    written.setFormatter(logging.Formatter("%(asctime)s tfdistr %(levelname)s: %(message)s"))
    log.addHandler(written)
    WARNINGS.tell = lambda message, category=None: events.write(
        "warning", message=message, **({"category": category} if category else {})
    )
    WARNINGS.note = lambda message: events.write("note", message=message)
    WARNINGS.tell_of_user = lambda message: events.write("warning", message=message, of_user=True)
    show = warnings.showwarning

    def show_and_send(message: Warning | str, *place: Any, **more: Any) -> None:
        show(message, *place, **more)
        WARNINGS.tell_of_user(str(message))

    warnings.showwarning = show_and_send

"""The events that a worker reports to its launcher: JSON lines in a file of the run directory.

The file is ``RUN_DIR/workers/<index>/events.jsonl``. A file works alike for workers in Python and in R, needs
no connection, outlives both processes, and can be read afterwards. Each line is an object with "event" (the
kind), "time" (seconds since 1970, UTC), "clock" and the fields of that kind:

=============  ==============================================================================
started        pid, host
ready          (none): the worker has joined its cluster
train_begin    epochs: int; steps and examples of an epoch: int, or null if the number is not known
epoch_begin    epoch: int, counted from 0 as in Keras
batch          epoch; step: batches done in this epoch, from 1; steps: int or null; metrics
epoch_end      epoch; metrics; seconds
in_session     epoch; metrics, with lists: the workers wait for the session (`tfdistr.training.in_session`)
worker_steps   global_step; local_steps and dropped: lists, a number for each worker; not_computed. Only the
               chief of parameter servers writes this event
checkpoint     epoch, step: the position of the training; seconds: the duration of the save
unsaved        (none): the job cannot have checkpoints, so a preemption saves nothing
warning        message: what the user should know; of_user: true if the user's code has warned; category:
               "batch_loss" for a BatchLossWarning
note           message: the progress of something
done           seconds; times: the seconds of each part of the training, if the process has trained
stopped        message, fix: the job was preempted, and has saved a checkpoint
failed         error_type, message, traceback (text or null), language ("python" or "r"),
               peer: true if the error only says that another worker was lost
=============  ==============================================================================

"time" is for people, because each host sets its own clock. "clock" orders the events of several hosts: it has
the name and the seconds of the monotonic clock that all processes of a host share. The reader removes it.

The launcher adds events for the display of the job: ``run`` (message) if it has ``resume``, ``log`` (worker,
line), ``restart`` (worker, reason) if all workers are restarted because of that worker, and ``replaced``
(worker, reason) if another process replaces that worker.

``schemas/event.schema.json`` describes the same.

If the disk is full, the training continues without progress events and without warnings; the user is warned
once. The other events use space that the writer has reserved.

JSON has no numbers for NaN and the infinities. They are written as "nan", "inf" and "-inf". In ``metrics``
the reader converts them to floats again.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tfdistr.schemas.events import Event
from tfdistr.schemas.normal_form import as_json
from tfdistr.utils.disk import REFUSES
from tfdistr.utils.log_tail import Tail


class HostClocks:
    """The translation of other clocks' readings into times of one clock of this process.

    A reading arrives here after some delay. The arrival with the shortest delay shows how far the two clocks
    are apart, up to that delay. So the order does not depend on how the clocks were set. Readings of one
    clock keep their order.

    Example:
        >>> clocks = HostClocks()
        >>> clocks.observe("an hour ahead", 3600.0, now=0.25)
        >>> clocks.observe("an hour ahead", 3610.0, now=10.0)
        >>> clocks.here("an hour ahead", 3605.0)
        5.0
    """

    def __init__(self) -> None:
        self._apart: dict[str, float] = {}

    def observe(self, clock: str, reading: float, now: float) -> None:
        """Record that a reading of a clock has arrived at the time ``now``."""
        self._apart[clock] = min(self._apart.get(clock, math.inf), now - reading)

    def here(self, clock: str, reading: float) -> float:
        """Return the time of a reading that was observed, or arrived later; never after its arrival."""
        return reading + self._apart[clock]


#: Characters of a text in an event. A user's message may have any length.
LONGEST = 10_000
#: Events that are dropped when the disk is full: nobody waits for them.
_MAY_MISS = ("epoch_begin", "batch", "epoch_end", "warning", "note")
_RESERVED = 2**17  # bytes: some messages and tracebacks of the greatest length
_NOT_FINITE = ("nan", "inf", "-inf")


def events_path(run_dir: str | os.PathLike[str], index: int) -> Path:
    """Return the path of the file with the events of worker `index`."""
    return Path(run_dir) / "workers" / str(index) / "events.jsonl"


def shorten(text: str) -> str:
    """Return a text of at most about ``LONGEST`` characters: the start and the end of a longer one."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    left_out = f"\n[... {len(text) - 2 * half:,} characters are only in the log of this worker ...]\n"
    return text[:half] + left_out + text[-half:]


def _line(kind: str, fields: Mapping[str, object]) -> bytes:
    clock = {"name": _clock_of_host(), "seconds": time.monotonic()}
    event = {"event": kind, "time": time.time(), "clock": clock, **fields}
    return json.dumps(event, allow_nan=False).encode() + b"\n"


@functools.cache
def _clock_of_host() -> str:
    """Return the name of the monotonic clock of this process: it counts from the start of the system."""
    found = [socket.gethostname()]
    with contextlib.suppress(OSError):  # only Linux has them; containers of one machine share both
        found = [Path("/proc/sys/kernel/random/boot_id").read_text()[:8], os.readlink("/proc/self/ns/time")]
    return " ".join(found)


class EventWriter:
    """A writer of the events of one worker."""

    def __init__(self, run_dir: str | os.PathLike[str], index: int) -> None:
        path = events_path(run_dir, int(index))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._run_dir, self._path = run_dir, path
        self._open()
        self._torn = self._has_warned = False
        self._reserve = _Reserve(path.parent)

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._opened = os.fstat(self._file)

    def _open_again(self) -> None:
        """Open the file again if the user's code has closed it; its number may be that of another file."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._file), self._opened):
                return
        self._open()

    def write(self, kind: str, **fields: object) -> None:
        """Append one event: its values become JSON types, and long texts are cut."""
        texts = {name: shorten(value) for name, value in fields.items() if isinstance(value, str)}
        line = _line(kind, as_json({**fields, **texts}))
        if self._append(line):
            return
        self.tell_full()
        if kind not in _MAY_MISS:
            self._append_from_reserve(line)

    def tell_full(self) -> None:
        """Warn the user, once, that the disk is full."""
        if self._has_warned:
            return
        self._has_warned = True
        message = (
            f"Cannot write logs and events to the disk of {self._run_dir}: it is full or read-only. The "
            "training continues without them. Make room, or its checkpoints and its result may not be "
            "written."
        )
        self._append_from_reserve(_line("warning", {"message": message}))

    def _append(self, line: bytes) -> bool:
        # One call: the line stays whole if others append, and is there if this process is killed next.
        line = b"\n" * self._torn + line
        self._open_again()
        try:
            self._torn = os.write(self._file, line) < len(line)
        except OSError as error:
            if error.errno not in REFUSES:
                raise
            return False
        return not self._torn

    def _append_from_reserve(self, line: bytes) -> None:
        self._reserve.free()
        self._append(line)  # if even that fails, the launcher sees the exit status of this process
        self._reserve.fill()

    def close(self) -> None:
        """Close the file. A process may exit without this: every event is written at once."""
        os.close(self._file)
        self._reserve.close()


class _Reserve:
    """Space on a disk, which a process frees when the disk is full, or when it exits."""

    def __init__(self, folder: Path) -> None:
        self._file: IO[bytes] | None = None
        with contextlib.suppress(OSError):
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - as long as the writer
        self.fill()

    def fill(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.write(os.urandom(_RESERVED))  # zeros may take no space

    def free(self) -> None:
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class EventReader:
    """A reader of the events of all workers of a run, while they run or afterwards."""

    def __init__(self, run_dir: str | os.PathLike[str], workers: int) -> None:
        self._tails = [Tail(events_path(run_dir, index)) for index in range(workers)]
        self._clocks = HostClocks()

    def poll(self) -> list[Event]:
        """Read the events since the last call, in the order in which they happened."""
        now = time.monotonic()
        read: list[tuple[str, float, Event]] = []
        for index, tail in enumerate(self._tails):
            for event in map(_read, tail.lines()):
                if event is not None:
                    name, seconds = _clock(event.pop("clock", None), index, now)
                    self._clocks.observe(name, seconds, now)
                    read.append((name, seconds, {"worker": index, **event}))
        read.sort(key=lambda one: self._clocks.here(one[0], one[1]))
        return [event for _, _, event in read]

    @property
    def lost(self) -> bool:
        """Return whether a file from which events were read was removed."""
        return any(tail.lost for tail in self._tails)


def _clock(given: Any, worker: int, now: float) -> tuple[str, float]:
    """Return the name and the seconds of the clock of an event; the arrival, if it has none."""
    try:
        return str(given["name"]), float(given["seconds"])
    except (TypeError, KeyError, ValueError):
        return f"worker {worker}", now


def _read(line: str) -> Event | None:
    try:
        read = json.loads(line)
    except ValueError:
        return None  # half a line, from a worker whose disk was full
    is_event = isinstance(read, dict) and {"event", "time"} <= read.keys()
    if not is_event:
        return None
    event: Event = read
    if "metrics" in event:
        event["metrics"] = _numbers(event["metrics"])
    return event


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return float(value) if value in _NOT_FINITE else value

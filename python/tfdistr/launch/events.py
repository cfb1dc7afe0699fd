"""The events that a worker reports to its launcher: JSON lines in a file of the run directory.

The file is ``RUN_DIR/workers/<index>/events.jsonl``. A file works alike for workers in Python and in R, needs
no connection, outlives both processes, and can be read afterwards. Each line is an object with "event" (the
kind), "time" (seconds since 1970, UTC) and the fields of that kind:

=============  ==============================================================================
started        pid, host
ready          (none): the worker has joined its cluster
train_begin    epochs: int; steps and examples of an epoch: int, or null if the number is not known
epoch_begin    epoch: int, counted from 0 as in Keras
batch          epoch; step: batches done in this epoch, from 1; steps: int or null; metrics
epoch_end      epoch; metrics; seconds
worker_steps   global_step; local_steps and dropped: lists, a number for each worker; not_computed. Only the
               chief of parameter servers writes this event
checkpoint     epoch, step: the position of the training; seconds: the duration of the save
unsaved        (none): the job cannot have checkpoints, so a preemption saves nothing
warning        message: what the user should know; of_user: true if code of the user has warned; category:
               "batch_loss" for a BatchLossWarning
note           message: how far something is
done           seconds
stopped        message, fix: the job was told to end, and has saved a checkpoint
failed         error_type, message, traceback (text or null), language ("python" or "r"),
               peer: true if the error only says that another worker is gone
=============  ==============================================================================

The launcher adds events for the display of the job: ``log`` (worker, line), ``restart`` (worker, reason) if
all workers are started again because of that worker, and ``replaced`` (worker, reason) if another process
replaces that worker.

``schemas/event.schema.json`` describes the same.

JSON has no numbers for NaN and the infinities. They are written as "nan", "inf" and "-inf". In ``metrics``
the reader converts them to floats again.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tfdistr._utils.as_json import as_json
from tfdistr._utils.log_tail import Tail

#: Characters of a text in an event. A message of the user may have any length.
LONGEST = 10_000
_NOT_FINITE = ("nan", "inf", "-inf")


def events_path(run_dir: str | os.PathLike[str], index: int) -> Path:
    """The path of the file with the events of worker `index`."""
    return Path(run_dir) / "workers" / str(index) / "events.jsonl"


def cut(text: str) -> str:
    """Return a text of at most about ``LONGEST`` characters: the begin and the end of a longer one."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    left_out = f"\n[... {len(text) - 2 * half:,} characters are only in the log of this worker ...]\n"
    return text[:half] + left_out + text[-half:]


class EventWriter:
    """Writes the events of one worker.

    Args:
        run_dir: The directory of the run; folders in it are made as needed.
        index: The index of this worker, from 0.

    Example:
        >>> writer = EventWriter(run_dir, 0)
        >>> writer.write("epoch_end", epoch=0, metrics={"loss": 0.25}, seconds=1.5)
    """

    def __init__(self, run_dir: str | os.PathLike[str], index: int) -> None:
        path = events_path(run_dir, int(index))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, kind: str, **fields: Any) -> None:
        """Append one event.

        Args:
            kind: Its kind, as in the table above.
            **fields: Its fields. NumPy scalars, arrays and tensors become numbers and lists;
                a value without a form in JSON becomes text. Long texts are cut.
        """
        texts = {name: cut(value) for name, value in fields.items() if isinstance(value, str)}
        event = {"event": kind, "time": time.time(), **as_json({**fields, **texts})}
        # One call: the line stays whole if others append, and is there if this process is killed next.
        os.write(self._file, json.dumps(event, allow_nan=False).encode() + b"\n")

    def close(self) -> None:
        """Close the file. Not needed at the end of a process: every event is written at once."""
        os.close(self._file)


class EventReader:
    """Reads the events of all workers of a run, while they run or afterwards.

    Args:
        run_dir: The directory of the run.
        workers: The number of its workers.

    Example:
        >>> [event["event"] for event in EventReader(run_dir, workers=1).poll()]
        ['epoch_end']
    """

    def __init__(self, run_dir: str | os.PathLike[str], workers: int) -> None:
        self._tails = [Tail(events_path(run_dir, index)) for index in range(workers)]

    def poll(self) -> list[dict[str, Any]]:
        """Read the events that came since the last call, in the order of their times.

        Returns:
            One dictionary an event: "worker" (its index), "event", "time" and the fields.
        """
        events = [
            {"worker": index, **event}
            for index, tail in enumerate(self._tails)
            for event in map(_read, tail.lines())
            if event is not None
        ]
        return sorted(events, key=lambda event: float(event["time"]))


def _read(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None  # half a line, from a worker whose disk was full
    if not isinstance(event, dict) or "event" not in event or "time" not in event:
        return None
    if "metrics" in event:
        event["metrics"] = _numbers(event["metrics"])
    return event


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return float(value) if value in _NOT_FINITE else value

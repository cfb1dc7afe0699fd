"""The trace of a run: the loss, gradient norms and learning rates of each step, in one file of its folder.

The file has a line of JSON for each start of the training and for each step. The chief appends to it with
each checkpoint and at the end. A training that was restarted makes steps again: later lines count.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfdistr.checkpoint.lock import check_lock, lock_id
from tfdistr.errors import ArgumentError, CheckpointError
from tfdistr.schemas import validate

log = logging.getLogger("tfdistr")

#: The name of the file in the folder of the run.
TRACE = "trace.jsonl"
_BEFORE = 10  # steps that lead to a step


@dataclass(frozen=True)
class TracedStep:
    """A step of a run.

    Attributes:
        step: The number of the step, counted from 1 over all epochs.
        epoch: The number of its epoch, counted from 1.
        loss: The loss of the whole batch; None if the step shows none.
        norms: For each optimizer, the norm of all its gradients; None if it got none, or left them out.
        rates: For each optimizer, its learning rate.
        skipped: Whether loss scaling left the step out, as its scaled gradients were too large.
    """

    step: int
    epoch: int
    loss: float | None
    norms: tuple[float | None, ...]
    rates: tuple[float | None, ...]
    skipped: bool = False

    @property
    def norm(self) -> float | None:
        """The norm of the gradients of the first optimizer; None if there is none."""
        return self.norms[0] if self.norms else None

    @property
    def rate(self) -> float | None:
        """The learning rate of the first optimizer; None if there is none."""
        return self.rates[0] if self.rates else None

    @property
    def is_finite(self) -> bool:
        """Return whether all its numbers are finite. A skipped step has no norms."""
        return all(math.isfinite(n) for n in (self.loss, *self.norms) if n is not None)


@dataclass(frozen=True)
class Trace:
    """The trace of a run.

    Attributes:
        starts: What each start of the training has recorded: ``step``, the number of steps before it, and
            ``workers``, ``optimizers``, ``epochs``, ``data``, ``kernels``, ``versions`` and ``differences``
            from one worker.
        steps: The steps by their numbers.
    """

    starts: list[dict[str, Any]] = field(default_factory=list)
    steps: dict[int, TracedStep] = field(default_factory=dict)

    def before(self, step: int) -> list[TracedStep]:
        """Return up to ten steps that lead to a step."""
        return [self.steps[number] for number in range(step - _BEFORE, step) if number in self.steps]

    def start_of(self, step: int) -> dict[str, Any]:
        """Return the start of the training that has made a step."""
        return [start for start in self.starts if start["step"] < step][-1]


class TraceFile:
    """The file of a trace, to which the chief of the run appends."""

    def __init__(self, run_dir: Path) -> None:
        self._path, self._lock = run_dir / TRACE, lock_id(run_dir)
        self._can_write = True

    def write(self, lines: Sequence[dict[str, Any]]) -> None:
        """Append lines. If the disk is full, the training continues without them, with a warning."""
        if not lines or not self._can_write:
            return
        text = "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines)
        try:
            check_lock(self._path.parent, self._lock)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "r+b") as file:
                if file.seek(0, os.SEEK_END) and os.pread(descriptor, 1, file.tell() - 1) != b"\n":
                    text = f"\n{text}"  # a killed process has left a part of a line
                file.write(text.encode())
        except CheckpointError:  # the next checkpoint raises it
            self._can_write = False
        except OSError as error:
            self._can_write = False
            log.warning("Cannot write the trace %s: %s. The training continues.", self._path, error.strerror)


def line_of_start(step: int, **known: object) -> dict[str, Any]:
    """Return the line of a start of the training after so many steps."""
    return {"start": {"step": step, **known}}


def line_of_step(made: TracedStep) -> dict[str, Any]:
    """Return the line of a step. JSON has no numbers that are not finite: they are text."""
    line: dict[str, Any] = {
        "step": made.step,
        "epoch": made.epoch,
        "loss": _plain(made.loss),
        "norms": [_plain(norm) for norm in made.norms],
        "rates": [_plain(rate) for rate in made.rates],
    }
    return line | ({"skipped": True} if made.skipped else {})


def _plain(number: float | None) -> float | str | None:
    return number if number is None or math.isfinite(number) else str(number)


def read_trace(run_dir: Path) -> Trace:
    """Read the trace of the run in a folder. The part of a line that a killed process has left is skipped.

    Raises:
        ArgumentError: There is no trace, or the file is none.
    """
    path = run_dir / TRACE
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ArgumentError(
            "A run can be examined if it has a trace, which distributed_fit() writes with its checkpoints.",
            received=f"{path}: {error.strerror}",
            fix='Train with run_dir="my_run" and checkpoint_every="epoch". There is no trace of parameter '
            "servers, of several devices in one process, and of models with their own fit().",
        ) from error
    trace = Trace()
    for number, line in enumerate(lines, 1):
        try:
            _add(trace, json.loads(line))
        except (ValueError, RecursionError) as error:
            if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
                continue
            raise ArgumentError(
                "Each line of a trace must be a start or a step.",
                received=f"line {number} of {path}: {str(error).splitlines()[0]}",
                fix="Restore the file, or examine another run.",
            ) from error
    return trace


def _add(trace: Trace, line: Any) -> None:
    validate("trace", line)
    if "start" in line:
        trace.starts.append(line["start"])
        for step in [step for step in trace.steps if step > line["start"]["step"]]:
            del trace.steps[step]  # they are made again
        return
    if not trace.starts or line["step"] <= trace.starts[-1]["step"]:
        raise ValueError("a step before its start")
    norms, rates = (tuple(_number(value) for value in line[name]) for name in ("norms", "rates"))
    trace.steps[line["step"]] = TracedStep(
        line["step"], line["epoch"], _number(line["loss"]), norms, rates, line.get("skipped", False)
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)

"""The trace of the running training, from the values of its steps to the file of the run."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfdistr.checkpoint.trace import TracedStep, TraceFile, line_of_start, line_of_step
from tfdistr.errors import NotFiniteError
from tfdistr.strategies.exact.step_trace import LOSS, OF_OPTIMIZER, StepTrace


class RunTrace:
    """The trace of a training. All workers record alike; the chief alone keeps and writes.

    Args:
        run_dir: The folder of the run, on the chief; None on the other workers.
        stops: Whether a step that is not finite ends the training.

    Attributes:
        steps: Records the values of a step.
    """

    def __init__(
        self, steps: StepTrace, run_dir: Path | None, *, stops: bool = False, **known: object
    ) -> None:
        self.steps, self._stops = steps, stops
        self._file = TraceFile(run_dir) if run_dir is not None else None
        self._start: dict[str, Any] | None = known | {
            "optimizers": [type(each).__name__ for each in steps.optimizers]
        }
        self._made: list[tuple[int, int, Sequence[object]]] = []

    def add(self, epoch: int, first: int, values: Sequence[object]) -> None:
        """Add the values of steps of an epoch (from 0), the first of which has the number ``first``.

        They stay in tensors, which nobody waits for.
        """
        if self._file is not None and values:
            if self._start is not None:
                self._file.write([line_of_start(first - 1, **self._start)])
                self._start = None
            self._made.append((epoch, first, values))
            if self._stops:
                self._check(epoch, first, values)

    def _check(self, epoch: int, first: int, values: Sequence[object]) -> None:
        bad = next((step for step in self._steps(epoch, first, values) if not step.is_finite), None)
        if bad is not None:
            raise NotFiniteError(
                f"The loss or the gradients of step {bad.step} are not finite.",
                received=f"the loss {bad.loss}; gradient norms: {', '.join(map(str, bad.norms))}",
                fix=f"Call tfdistr.replay() for the step {bad.step}, which says why.",
            )

    def write(self) -> None:
        """Append the steps since the last call to the file."""
        made, self._made = self._made, []
        if self._file is not None:
            self._file.write([line_of_step(step) for each in made for step in self._steps(*each)])

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Write the last steps at the end of the context, also if the training fails there."""
        try:
            yield
        finally:
            self.write()

    def _steps(self, epoch: int, first: int, values: Sequence[object]) -> list[TracedStep]:
        rows = np.concatenate([np.asarray(each) for each in values])
        return [traced_step(self.steps, epoch, first + number, row) for number, row in enumerate(rows)]


def traced_step(trace: StepTrace, epoch: int, step: int, row: Any) -> TracedStep:
    """Return the step that the values of a ``StepTrace`` describe."""
    numbers = [float(value) for value in row]
    norms: list[float | None] = []
    rates: list[float | None] = []
    skipped = False
    for number, optimizer in enumerate(trace.optimizers):
        squares, scale, rate = numbers[LOSS + 1 + OF_OPTIMIZER * number :][:OF_OPTIMIZER]
        left_out = hasattr(optimizer, "dynamic_scale") and not math.isfinite(squares)
        skipped = skipped or left_out
        used = squares != -1.0
        norms.append(math.sqrt(squares) / scale if used and not left_out else None)
        rates.append(rate if used else None)
    loss = numbers[LOSS] if trace.has_loss else None
    return TracedStep(step, epoch + 1, loss, tuple(norms), tuple(rates), skipped)

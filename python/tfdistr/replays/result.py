"""The result of ``replay()``: plain numbers, arrays and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdistr.utils.arguments import check_choice
from tfdistr.utils.packages import data_frame, figure

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas

    from tfdistr.replays.explain import Cause

Table = list[dict[str, Any]]
_SHOWN = 3
#: The tables of a replay.
TABLES = ("steps", "rows", "gradients", "updates")


@dataclass(frozen=True)
class Replay:
    """A step of a run, made again.

    Attributes:
        run: The folder or the URL of the run.
        step: The number of the step, counted from 1 over all epochs.
        difference: The largest relative difference of the loss, the gradient norms and the learning rates of
            the steps that were made again from those of the trace. 0 means the same to the bit.
        steps: The steps that were made again, and up to ten of the trace before: ``step``, ``epoch``,
            ``loss``, ``norm`` and ``learning_rate`` of the first optimizer, ``skipped`` (by loss scaling),
            and ``again``.
        rows: The rows of the step: ``row`` in the batch, ``index`` in the data (both from 0; None if the data
            has no index), and ``loss``, that of this row alone (None if the model shows none). Rows of files
            that ``load_dataset()`` describes also have ``file``, and ``row_of_file``, from 0.
        gradients: The gradient of each weight, as the optimizer got it: ``layer``, ``weight``, ``norm``,
            ``largest``, and the shares ``nan`` and ``inf`` of its entries.
        updates: The same for the change of each weight by the step.
        inputs: The values of the rows, in the structure that the step got: ``(x, y)``, for example.
        weights_before: The weights before the step, by name.
        weights_after: The weights after it.
        cause: Why the step is not finite: ``where``, ``layer``, ``operation``, ``rows`` and ``lines`` in
            words; None if it is finite.
    """

    run: str
    step: int
    difference: float
    steps: Table
    rows: Table
    gradients: Table
    updates: Table
    inputs: Any
    weights_before: dict[str, Any]
    weights_after: dict[str, Any]
    cause: Cause | None

    @property
    def epoch(self) -> int:
        """The number of its epoch, counted from 1."""
        return int(self.steps[-1]["epoch"])

    @property
    def loss(self) -> float | None:
        """The loss of the whole batch; None if the step shows none."""
        loss: float | None = self.steps[-1]["loss"]
        return loss

    def to_frame(self, table: str = "rows") -> pandas.DataFrame:
        """A table as a data frame.

        Args:
            table: "steps", "rows", "gradients" or "updates".

        Raises:
            ArgumentError: There is no such table, or pandas is not installed.
        """
        rows: Table = getattr(self, check_choice("table", table, TABLES))
        frame: pandas.DataFrame = data_frame(rows, list(rows[0]) if rows else [])
        return frame

    def plot(self) -> matplotlib.figure.Figure:
        """Plot the loss and the gradient norm of the steps that lead to this one.

        Raises:
            ArgumentError: matplotlib is not installed.
        """
        drawn: matplotlib.figure.Figure = figure(7, 5)
        for panel, name in zip(drawn.subplots(2, 1, sharex=True), ("loss", "norm"), strict=True):
            numbers = [np.nan if row[name] is None else row[name] for row in self.steps]
            panel.plot([row["step"] for row in self.steps], numbers, marker="o")
            panel.axvline(self.step, linestyle=":")
            panel.set_ylabel(name)
        panel.set_xlabel("step")
        return drawn

    def __str__(self) -> str:
        """The step in a few lines."""
        again = [row for row in self.steps if row["again"]]
        lines = [
            f"Step {self.step} of {self.run}, in epoch {self.epoch}: loss {_text(self.loss)}",
            f"  made again from step {again[0]['step']}; the largest difference from the trace is "
            f"{self.difference:.3g}",
            f"  {len(self.rows)} rows{_listed('index', self.rows)}",
        ]
        losses = [row for row in self.rows if row["loss"] is not None]
        if losses:
            most = sorted(losses, key=lambda row: (np.isfinite(row["loss"]), -abs(row["loss"])))[:_SHOWN]
            shown = ", ".join(f"{_text(row['loss'])} of row {row['row']}" for row in most)
            lines.append(f"  largest losses of single rows: {shown} (counted from 0)")
        for name in ("gradients", "updates"):
            largest = sorted(getattr(self, name), key=lambda row: (-row["nan"] - row["inf"], -row["norm"]))
            shown = ", ".join(f"{_weight(row)} {_text(row['norm'])}{_odd(row)}" for row in largest[:_SHOWN])
            lines.append(f"  norms of {name}: {shown or 'none'}")
        return "\n".join([*lines, *(f"  {line}" for line in (self.cause.lines if self.cause else ()))])

    __repr__ = __str__


def _text(number: float | None) -> str:
    return "not shown" if number is None else f"{number:.6g}"


def _weight(row: dict[str, Any]) -> str:
    return "/".join(part for part in (row["layer"], row["weight"]) if part)


def _odd(row: dict[str, Any]) -> str:
    parts = [f"{row[kind]:.0%} {kind}" for kind in ("nan", "inf") if row[kind]]
    return f" ({', '.join(parts)})" if parts else ""


def _listed(name: str, rows: Table) -> str:
    known = [str(row[name]) for row in rows if row[name] is not None]
    if not known:
        return ""
    more = ", ..." if len(known) > _SHOWN else ""
    return f", {', '.join(known[:_SHOWN])}{more} of the data (counted from 0)"

"""The progress of a job, shown once for all of its workers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from tfdistr.errors import ArgumentError
from tfdistr.utils.disk import REFUSES
from tfdistr.utils.warn import warn

_VERBOSE = (0, 1, 2)


def make_display(verbose: str | float = "auto", console: Console | None = None) -> Display:
    """Make the display of the events of a job (see `tfdistr.supervision.events`).

    Every display warns the user of the warnings of the job, of each one once. It also shows lines that the
    workers print; such events come only with ``follow=True``.

    Args:
        verbose: 0 for nothing more; 1 for a bar with metrics while an epoch runs, and a line for each
            finished epoch; 2 for the lines alone; "auto" for 1 in a terminal or a notebook, else 0. If a bar
            cannot be drawn, 1 acts as 2.
        console: The output; by default, standard output.

    Returns:
        A display: pass each event to its method `event`, and call `close` at the end.

    Raises:
        ArgumentError: If `verbose` is something else.

    Example:
        >>> display = make_display(2)
        >>> display.event({"event": "train_begin", "worker": 0, "epochs": 2, "steps": None})
        >>> end = {"event": "epoch_end", "worker": 0, "epoch": 0, "metrics": {"loss": 0.5}, "seconds": 2}
        >>> display.event(end)
        Epoch 1/2  2.0 s  loss: 0.5000
        >>> display.close()
    """
    console = console or Console()
    if isinstance(verbose, str) and verbose == "auto":
        level = int(console.is_jupyter or getattr(console.file, "isatty", bool)())
    elif isinstance(verbose, int | float) and verbose in _VERBOSE:
        level = int(verbose)
    else:
        raise ArgumentError(
            '`verbose` must be "auto", 0, 1 or 2.',
            received=repr(verbose),
            fix="Use 0 for silence, 1 for a progress bar, 2 for one line an epoch.",
        )
    drawable = find_spec("ipywidgets") is not None if console.is_jupyter else console.is_interactive
    return (Display, Bar if drawable else Lines, Lines)[level](console)


class Display:
    """Warns the user, and shows the lines that the workers print; the other displays show more.

    Args:
        console: The output.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._warnings: set[str] = set()

    def event(self, event: Mapping[str, Any]) -> None:
        """Handle an event and show its effect."""
        show = getattr(self, f"_on_{event['event']}", None)
        if show is not None:
            show(event)

    def close(self) -> None:
        """Stop showing; a second call does nothing."""

    def _on_log(self, event: Mapping[str, Any]) -> None:
        worker = event.get("worker")
        self._print(event["line"] if worker is None else f"[worker {worker}] {event['line']}")

    def _on_warning(self, event: Mapping[str, Any]) -> None:
        message = event["message"]
        if message not in self._warnings:  # mostly, all workers send the same warnings
            self._warnings.add(message)
            warn(message, event.get("category"), worker=event["worker"] if event.get("of_user") else None)

    def _on_note(self, event: Mapping[str, Any]) -> None:
        self._print(event["message"])

    def _print(self, line: str) -> None:
        try:
            self._console.print(Text.from_ansi(line), soft_wrap=True)
        except OSError as error:
            if error.errno not in REFUSES:
                raise
            message = f"Progress cannot be shown: {error.strerror}. The training continues."
            self._on_warning({"message": message})


class Lines(Display):
    """Shows one line for each finished epoch."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._chief = math.inf  # index of the worker whose training is shown
        self._epochs = 0
        self._steps: int | None = None

    def event(self, event: Mapping[str, Any]) -> None:
        """Handle an event and show its effect."""
        kind = event["event"]
        if kind == "train_begin" and event["worker"] <= self._chief:
            self._chief = event["worker"]
            self._epochs, self._steps = int(event["epochs"]), _whole(event["steps"])
        if kind not in ("epoch_begin", "batch", "epoch_end") or event["worker"] == self._chief:
            super().event(event)

    def _on_epoch_end(self, event: Mapping[str, Any]) -> None:
        self._print(f"{self._title(event)}  {event['seconds']:.1f} s  {_metrics(event['metrics'])}")

    def _on_restart(self, event: Mapping[str, Any]) -> None:
        self._chief = math.inf
        self._print(f"Starting the workers again: {event['reason']}.")

    def _title(self, event: Mapping[str, Any]) -> str:
        return f"Epoch {int(event['epoch']) + 1}/{self._epochs}"


class Bar(Lines):
    """Shows these lines, and a bar over the steps of the running epoch, which vanishes at the end."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[count]}", markup=False),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[metrics]}", markup=False),
            console=console,
            transient=True,
            # In a notebook, the bar takes what is printed while it is drawn, and a thread draws at any time.
            auto_refresh=not console.is_jupyter,
        )
        self._task: TaskID | None = None

    def close(self) -> None:
        """Remove the bar."""
        self._progress.stop()

    def _on_started(self, event: Mapping[str, Any]) -> None:
        if self._task is None:
            self._begin("Starting the workers", None)

    def _on_restart(self, event: Mapping[str, Any]) -> None:
        super()._on_restart(event)
        self._begin("Starting the workers", None)

    def _on_epoch_begin(self, event: Mapping[str, Any]) -> None:
        self._begin(self._title(event), self._steps)

    def _on_batch(self, event: Mapping[str, Any]) -> None:
        if self._task is not None:
            step, steps = int(event["step"]), _whole(event["steps"])
            self._progress.update(
                self._task,
                total=steps,
                completed=step,
                count=f"{step}/{'?' if steps is None else steps}",
                metrics=_metrics(event["metrics"]),
                refresh=not self._progress.live.auto_refresh,
            )

    def _begin(self, title: str, steps: int | None) -> None:
        # A new task, because an old task keeps its number of steps.
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(title, total=steps, count="", metrics="")
        self._progress.start()


def _whole(steps: float | None) -> int | None:
    return None if steps is None else int(steps)


def _metrics(metrics: Mapping[str, Any]) -> str:
    return "  ".join(f"{name}: {_number(value)}" for name, value in metrics.items())


def _number(value: Any) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:.4f}" if value == 0 or not abs(value) < 1e-3 else f"{value:.3e}"

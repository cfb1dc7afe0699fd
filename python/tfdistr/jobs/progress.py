"""The display of a job's progress in a Python session, once for all workers."""

from __future__ import annotations

from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from tfdistr.jobs.display import Display, choose_display
from tfdistr.utils.warn import warn


def make_display(verbose: str | float = "auto", console: Console | None = None) -> Display:
    """Make the display of a job's events for ``verbose``: 0 for warnings, 1 for a bar, 2 for lines."""
    console = console or Console()
    in_terminal = bool(getattr(console.file, "isatty", bool)())
    drawable = find_spec("ipywidgets") is not None if console.is_jupyter else console.is_interactive
    return choose_display(
        verbose, RichScreen(console), watched=console.is_jupyter or in_terminal, drawable=drawable
    )


class RichScreen:
    """A terminal or a notebook."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[count]}", markup=False),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[metrics]}", markup=False),
            console=console,
            transient=True,
            # In a notebook, the bar captures output while it is drawn, and a thread draws at any time.
            auto_refresh=not console.is_jupyter,
        )
        self._task: TaskID | None = None

    def line(self, text: str) -> None:
        """Print a line, with the colours of the worker."""
        self._console.print(Text.from_ansi(text), soft_wrap=True)

    def note(self, message: str) -> None:
        """Print a message of tfdistr."""
        self.line(message)

    def warn(self, message: str, category: str | None, worker: int | None) -> None:
        """Warn the user."""
        warn(message, category, worker=worker)

    def number(self, text: str) -> str:
        """Return a number in Python syntax."""
        return text

    def begin(self, title: str, steps: int | None) -> None:
        """Draw a bar, in place of the one before."""
        # A new task, because an old task keeps its number of steps.
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(title, total=steps, count="", metrics="")
        self._progress.start()

    def update(self, step: int, steps: int | None, metrics: str) -> None:
        """Move the bar."""
        if self._task is not None:
            self._progress.update(
                self._task,
                total=steps,
                completed=step,
                count=f"{step}/{'?' if steps is None else steps}",
                metrics=metrics,
                refresh=not self._progress.live.auto_refresh,
            )

    def close(self) -> None:
        """Remove the bar."""
        if self._task is not None:
            self._progress.stop()

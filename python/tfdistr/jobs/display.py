"""The display of a job's events (see `tfdistr.supervision.events`) on any screen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

from tfdistr.errors import ArgumentError
from tfdistr.r.messages import in_r
from tfdistr.r.values import number_in_r
from tfdistr.schemas.events import Event
from tfdistr.utils.disk import REFUSES
from tfdistr.utils.interrupts import defer_sigint

_VERBOSE = (0, 1, 2)


class Screen(Protocol):
    """The output of a display."""

    def line(self, text: str) -> None:
        """Print a line, above the bar if there is one."""

    def note(self, message: str) -> None:
        """Print a message of tfdistr."""

    def warn(self, message: str, category: str | None, worker: int | None) -> None:
        """Warn the user; see `tfdistr.utils.warn.warn`."""

    def number(self, text: str) -> str:
        """Return a number in the syntax of the session's language."""

    def begin(self, title: str, steps: int | None) -> None:
        """Draw a bar, in place of the one before."""

    def update(self, step: int, steps: int | None, metrics: str) -> None:
        """Move the bar, if there is one."""

    def close(self) -> None:
        """Remove the bar; a second call does nothing."""


def choose_display(verbose: object, screen: Screen, *, watched: bool, drawable: bool) -> Display:
    """Make the display for the argument `verbose`; ``watched`` says whether a bar is seen while it moves."""
    auto = isinstance(verbose, str) and verbose == "auto"
    if auto:
        level = 1 if watched else 2
    elif isinstance(verbose, int | float) and verbose in _VERBOSE:
        level = int(verbose)
    else:
        raise ArgumentError(
            '`verbose` must be "auto", 0, 1 or 2.',
            received=repr(verbose),
            fix="Use 0 for silence, 1 for a progress bar, 2 for one line per epoch.",
        )
    if level == 0:
        return Display(screen)
    # A script that runs as every worker prints its lines once, by the chief, unless they were asked for.
    last = 0 if auto and not watched else math.inf
    return (Bar if level == 1 and drawable else LineDisplay)(screen, last)


class Display:
    """The base display: it shows warnings and the lines that the workers print."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._warnings: set[str] = set()
        self._notes: dict[str, object] = {}  # who sent each first

    def event(self, event: Event) -> None:
        """Handle an event and show its effect."""
        show = getattr(self, f"_on_{event['event']}", None)
        if show is None:
            return
        try:
            show(event)
        except OSError as error:
            if error.errno not in REFUSES:
                raise
            message = f"Cannot show progress: {error.strerror}. The training continues."
            self._on_warning({"message": message})

    def close(self) -> None:
        """Stop showing; a second call does nothing."""
        self._screen.close()

    def _on_log(self, event: Event) -> None:
        worker = event.get("worker")
        self._screen.line(event["line"] if worker is None else f"[worker {worker}] {event['line']}")

    def _on_warning(self, event: Event) -> None:
        message = event["message"]
        if message not in self._warnings:  # mostly, all workers send the same warnings
            self._warnings.add(message)
            worker = event["worker"] if event.get("of_user") else None
            self._screen.warn(message, event.get("category"), worker)

    def _on_note(self, event: Event) -> None:
        message, worker = event["message"], event.get("worker")
        if self._notes.setdefault(message, worker) == worker:  # mostly, all workers send the same notes
            self._screen.note(message)


class ScriptDisplay(Display):
    """The display of a script, whose trainings have their own displays. It also shows restarts."""

    def _on_restart(self, event: Event) -> None:
        self._screen.line(f"Starting the workers again: {event['reason']}.")


class LineDisplay(ScriptDisplay):
    """A display with one line per finished epoch, of the first worker with an index up to ``last``."""

    def __init__(self, screen: Screen, last: float = math.inf) -> None:
        super().__init__(screen)
        self._last = last
        self._chief = last  # index of the worker whose training is shown
        self._epochs = 0
        self._steps: int | None = None

    def event(self, event: Event) -> None:
        """Handle an event and show its effect."""
        kind = event["event"]
        worker = event.get("worker")
        if kind == "train_begin" and worker is not None and worker <= self._chief:
            self._chief = worker
            self._epochs, self._steps = int(event["epochs"]), _whole(event["steps"])
        if kind not in ("epoch_begin", "batch", "epoch_end") or worker == self._chief:
            super().event(event)

    def _on_run(self, event: Event) -> None:
        self._screen.note(event["message"])

    def _on_epoch_end(self, event: Event) -> None:
        self._screen.line(f"{self._title(event)}  {event['seconds']:.1f} s  {self._metrics(event)}")

    def _on_restart(self, event: Event) -> None:
        self._chief = self._last
        super()._on_restart(event)

    def _title(self, event: Event) -> str:
        return f"Epoch {int(event['epoch']) + 1}/{self._epochs}"

    def _metrics(self, event: Event) -> str:
        write = self._screen.number
        return "  ".join(f"{name}: {write(_number(value))}" for name, value in event["metrics"].items())


class Bar(LineDisplay):
    """A display with these lines and a bar over the steps of the running epoch, removed at the end."""

    def __init__(self, screen: Screen, last: float = math.inf) -> None:
        super().__init__(screen, last)
        self._drawn = False

    def _on_started(self, event: Event) -> None:
        if not self._drawn:
            self._begin("Starting the workers", None)

    def _on_restart(self, event: Event) -> None:
        super()._on_restart(event)
        self._begin("Starting the workers", None)

    def _on_epoch_begin(self, event: Event) -> None:
        self._begin(self._title(event), self._steps)

    def _on_in_session(self, event: Event) -> None:
        self._screen.close()  # the function may print, or draw a bar

    def _on_batch(self, event: Event) -> None:
        self._screen.update(int(event["step"]), _whole(event["steps"]), self._metrics(event))

    def _begin(self, title: str, steps: int | None) -> None:
        self._drawn = True
        self._screen.begin(title, steps)


def _whole(steps: float | None) -> int | None:
    return None if steps is None else int(steps)


def _number(value: object) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:.4f}" if value == 0 or not abs(value) < 1e-3 else f"{value:.3e}"


def display_for_r(
    verbose: object,
    line: Callable[[str], object],
    warn: Callable[[str, int | None, str | None], object],
    bar: Mapping[str, Callable[..., object]] | None,
    *,
    interactive: bool,
    of_script: bool = False,
) -> Display:
    """Make the display of the events of a job in an R session.

    Args:
        verbose: 0, 1, 2 or "auto", see `tfdistr.jobs.progress.make_display`.
        warn: Warns the user, with the index of the worker whose user code has warned, and the category.
        bar: Functions that draw a bar: "begin" with its title and its number of steps, "update" with the
            step and the metrics, "done". None if no bar can be drawn.
        interactive: Whether a user watches the session.
        of_script: Whether the events are those of a script; then `verbose` has no effect.
    """
    screen = _RScreen(line, warn, bar or {})
    if of_script:
        return ScriptDisplay(screen)
    return choose_display(verbose, screen, watched=interactive, drawable=bar is not None)


class _RScreen:
    """The screen of an R session. SIGINT waits until an R function has returned."""

    def __init__(
        self,
        line: Callable[[str], object],
        warn: Callable[[str, int | None, str | None], object],
        bar: Mapping[str, Callable[..., object]],
    ) -> None:
        self._line, self._warn = defer_sigint(line), defer_sigint(warn)
        self._bar = {name: defer_sigint(function) for name, function in bar.items()}

    def line(self, text: str) -> None:
        self._line(text)

    def note(self, message: str) -> None:
        self._line(in_r(message))

    def warn(self, message: str, category: str | None, worker: int | None) -> None:
        self.close()
        self._warn(in_r(message) if worker is None else message, worker, category)

    def number(self, text: str) -> str:
        return number_in_r(text)

    def begin(self, title: str, steps: int | None) -> None:
        self._bar["begin"](title, steps)

    def update(self, step: int, steps: int | None, metrics: str) -> None:
        self._bar["update"](step, metrics)

    def close(self) -> None:
        if self._bar:
            self._bar["done"]()

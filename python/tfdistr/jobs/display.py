"""The display of a job's events (see `tfdistr.supervision.events`): what is shown, on any screen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from tfdistr.errors import ArgumentError
from tfdistr.utils.disk import REFUSES

_VERBOSE = (0, 1, 2)


class Screen(Protocol):
    """Where a display writes."""

    def line(self, text: str) -> None:
        """Print a line, above the bar if there is one."""

    def note(self, message: str) -> None:
        """Print a message of tfdistr."""

    def warn(self, message: str, category: str | None, worker: int | None) -> None:
        """Warn the user; see `tfdistr.utils.warn.warn`."""

    def number(self, text: str) -> str:
        """Return a number as the language of the session writes it."""

    def begin(self, title: str, steps: int | None) -> None:
        """Draw a bar, in place of the one before."""

    def update(self, step: int, steps: int | None, metrics: str) -> None:
        """Move the bar, if there is one."""

    def close(self) -> None:
        """Remove the bar; a second call does nothing."""


def choose_display(verbose: Any, screen: Screen, *, auto: bool, drawable: bool) -> Display:
    """Make the display for the argument `verbose`.

    Args:
        verbose: 0, 1, 2 or "auto", see `make_display`.
        screen: The output.
        auto: Whether "auto" is 1.
        drawable: Whether the screen can draw a bar; otherwise 1 is 2.

    Raises:
        ArgumentError: If `verbose` is something else.
    """
    if isinstance(verbose, str) and verbose == "auto":
        level = int(auto)
    elif isinstance(verbose, int | float) and verbose in _VERBOSE:
        level = int(verbose)
    else:
        raise ArgumentError(
            '`verbose` must be "auto", 0, 1 or 2.',
            received=repr(verbose),
            fix="Use 0 for silence, 1 for a progress bar, 2 for one line an epoch.",
        )
    return (Display, Bar if drawable else LineDisplay, LineDisplay)[level](screen)


class Display:
    """Warns the user, and shows the lines that the workers print; the other displays show more.

    Args:
        screen: The output.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._warnings: set[str] = set()

    def event(self, event: Mapping[str, Any]) -> None:
        """Handle an event and show its effect."""
        show = getattr(self, f"_on_{event['event']}", None)
        if show is None:
            return
        try:
            show(event)
        except OSError as error:
            if error.errno not in REFUSES:
                raise
            message = f"Progress cannot be shown: {error.strerror}. The training continues."
            self._on_warning({"message": message})

    def close(self) -> None:
        """Stop showing; a second call does nothing."""
        self._screen.close()

    def _on_log(self, event: Mapping[str, Any]) -> None:
        worker = event.get("worker")
        self._screen.line(event["line"] if worker is None else f"[worker {worker}] {event['line']}")

    def _on_warning(self, event: Mapping[str, Any]) -> None:
        message = event["message"]
        if message not in self._warnings:  # mostly, all workers send the same warnings
            self._warnings.add(message)
            worker = event["worker"] if event.get("of_user") else None
            self._screen.warn(message, event.get("category"), worker)

    def _on_note(self, event: Mapping[str, Any]) -> None:
        self._screen.note(event["message"])


class ScriptDisplay(Display):
    """Shows restarts too: the display of a script, whose trainings have displays of their own."""

    def _on_restart(self, event: Mapping[str, Any]) -> None:
        self._screen.line(f"Starting the workers again: {event['reason']}.")


class LineDisplay(ScriptDisplay):
    """Shows one line for each finished epoch."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
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
        self._screen.line(f"{self._title(event)}  {event['seconds']:.1f} s  {self._metrics(event)}")

    def _on_restart(self, event: Mapping[str, Any]) -> None:
        self._chief = math.inf
        super()._on_restart(event)

    def _title(self, event: Mapping[str, Any]) -> str:
        return f"Epoch {int(event['epoch']) + 1}/{self._epochs}"

    def _metrics(self, event: Mapping[str, Any]) -> str:
        write = self._screen.number
        return "  ".join(f"{name}: {write(_number(value))}" for name, value in event["metrics"].items())


class Bar(LineDisplay):
    """Shows these lines, and a bar over the steps of the running epoch, which vanishes at the end."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
        self._drawn = False

    def _on_started(self, event: Mapping[str, Any]) -> None:
        if not self._drawn:
            self._begin("Starting the workers", None)

    def _on_restart(self, event: Mapping[str, Any]) -> None:
        super()._on_restart(event)
        self._begin("Starting the workers", None)

    def _on_epoch_begin(self, event: Mapping[str, Any]) -> None:
        self._begin(self._title(event), self._steps)

    def _on_batch(self, event: Mapping[str, Any]) -> None:
        self._screen.update(int(event["step"]), _whole(event["steps"]), self._metrics(event))

    def _begin(self, title: str, steps: int | None) -> None:
        self._drawn = True
        self._screen.begin(title, steps)


def _whole(steps: float | None) -> int | None:
    return None if steps is None else int(steps)


def _number(value: Any) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:.4f}" if value == 0 or not abs(value) < 1e-3 else f"{value:.3e}"

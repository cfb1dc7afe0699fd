"""The display of a job in an R session, by functions of the R package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfdistr.jobs.display import Display, ScriptDisplay, choose_display
from tfdistr.r.messages import in_r
from tfdistr.r.values import number_in_r
from tfdistr.utils.interrupts import defer_sigint


def display_for_r(
    verbose: Any,
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
        line: Prints a line.
        warn: Warns the user, with the index of the worker whose user code has warned, and the category.
        bar: Functions that draw a bar: "begin" with its title and its number of steps, "update" with the
            step and the metrics, "done". None where no bar can be drawn.
        interactive: Whether a user watches the session.
        of_script: Whether the events are those of a script; then `verbose` has no meaning.

    Raises:
        ArgumentError: If `verbose` is something else.
    """
    screen = _RScreen(line, warn, bar or {})
    if of_script:
        return ScriptDisplay(screen)
    return choose_display(verbose, screen, auto=interactive, drawable=bar is not None)


class _RScreen:
    """An R session. SIGINT waits until a function of R has ended."""

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

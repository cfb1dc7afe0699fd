"""The events of a job for a display that is a function of R."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfdistr.utils.interrupts import whole

Event = dict[str, Any]


def events_for_r(show: Callable[[Event], object], kinds: Sequence[str]) -> Callable[[Event], None]:
    """Return a function that calls ``show`` with each event of these kinds.

    A call of R takes far longer than one of Python, so R gets only what it shows. SIGINT waits until R has
    shown it.

    Args:
        show: A function of R.
        kinds: The values of ``event["event"]`` that it shows.
    """
    show, shown = whole(show), frozenset(kinds)

    def pass_on(event: Event) -> None:
        if event["event"] in shown:
            show(event)

    return pass_on

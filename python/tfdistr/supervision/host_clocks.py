"""The order of events on several hosts, whose clocks may be hours apart."""

from __future__ import annotations

import math


class HostClocks:
    """Translates the readings of other clocks into times of one clock of this process.

    A reading arrives here after some delay. The arrival with the shortest delay shows how far the two clocks
    are apart, up to that delay. So the order does not depend on how the clocks were set. Readings of one
    clock keep their order.

    Example:
        >>> clocks = HostClocks()
        >>> clocks.observe("an hour ahead", 3600.0, now=0.25)
        >>> clocks.observe("an hour ahead", 3610.0, now=10.0)
        >>> clocks.here("an hour ahead", 3605.0)
        5.0
    """

    def __init__(self) -> None:
        self._apart: dict[str, float] = {}

    def observe(self, clock: str, reading: float, now: float) -> None:
        """Note that a reading of a clock has arrived at the time ``now``."""
        self._apart[clock] = min(self._apart.get(clock, math.inf), now - reading)

    def here(self, clock: str, reading: float) -> float:
        """Return the time of a reading that was observed, or came later; never after its arrival."""
        return reading + self._apart[clock]

"""How much of its time a worker waits for others: whether more workers have made a training faster."""

from __future__ import annotations

import logging

from tfdistr.collectives.interface import Collectives
from tfdistr.utils.warn import NOTE

log = logging.getLogger("tfdistr")

#: Seconds of training below which nothing is said: what happens once takes most of a short training.
LEAST_SECONDS = 10.0


class Waits:
    """Measures how long a worker waits for others, and exchanges with them, from now on.

    Args:
        collectives: The collectives of the worker; None without peers.
    """

    def __init__(self, collectives: Collectives | None) -> None:
        self._collectives = collectives
        self._before = (collectives.seconds if collectives else None) or 0.0

    def tell(self, seconds: float) -> None:
        """Say at the end of a training of so many seconds if one worker would have been as fast.

        While a worker waits, its core computes nothing for the training. So N workers that compute for less
        than 1/N of the time are no faster than one of them.
        """
        if self._collectives is None or self._collectives.seconds is None or seconds < LEAST_SECONDS:
            return
        waited = (self._collectives.seconds - self._before) / seconds
        workers = self._collectives.num_workers
        if self._collectives.share_a_host and workers * (1 - waited) < 1:
            log.warning(
                "The %d workers spent %.0f %% of the time exchanging gradients and waiting for each other. "
                "One worker with all cores, local_cluster(1), would be faster. With larger batches, workers "
                "exchange less often.",
                workers, 100 * waited, extra=NOTE,
            )  # fmt: skip

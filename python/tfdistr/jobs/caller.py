"""The differences between calls of ``distributed_fit()`` from different languages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfdistr.launch.local import WORKER


@dataclass(frozen=True)
class Caller:
    """The calling language.

    Args:
        on_event: Called with every event of a job, on the calling thread; see `tfdistr.launch.events`.
        command: The program of a worker; the run directory and the worker's index are appended.
        before_start: Called with the seed of a job and its run directory before workers are started there. It
            returns environment variables for the workers; the user's variables take precedence.
        on_seed: Called with the seed of a job that this process trains, before the functions of the job.
        build: Builds the trained model in this process; None for the job's own function.
    """

    on_event: Callable[[dict[str, Any]], object] = lambda event: None
    command: Sequence[str] = WORKER
    before_start: Callable[[int, str], Mapping[str, str]] = lambda seed, run_dir: {}
    on_seed: Callable[[int], object] = lambda seed: None
    build: Callable[[], Any] | None = None

"""What differs between calls of ``distributed_fit()`` from one language and from another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfdistr.launch.local import WORKER


@dataclass(frozen=True)
class Caller:
    """The language that calls.

    Args:
        on_event: Called with every event of a job, on the thread that calls; see `tfdistr.launch.events`.
        command: The program of a worker; the run directory and the worker's index are appended.
        before_start: Called with the seed of a job and its run directory before workers are started there. It
            returns environment variables for them, before which those of the user come.
        on_seed: Called with the seed of a job that this process trains, before its functions are.
        build: Builds the trained model in this process; None for the job's own function.
    """

    on_event: Callable[[dict[str, Any]], object]
    command: Sequence[str] = WORKER
    before_start: Callable[[int, str], Mapping[str, str]] = lambda seed, run_dir: {}
    on_seed: Callable[[int], object] = lambda seed: None
    build: Callable[[], Any] | None = None

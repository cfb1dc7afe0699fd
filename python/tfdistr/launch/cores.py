"""Which cores of its machine each worker runs on.

Workers that share all cores get into each other's way: each of them would start a thread for every core.
A launcher tells each worker which share of its machine's cores it has; the worker takes it before TensorFlow
starts.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from tfdistr._utils.arguments import optional_whole
from tfdistr.errors import ArgumentError

_SHARE = "TFDISTR_CORES"
# TensorFlow's own variables for the threads within one operation, and for operations side by side.
_POOLS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def check_cores(workers: int, cores_per_worker: Any) -> int | None:
    """``cores_per_worker``, if this machine has as many cores for so many workers; None for a fair share.

    Raises:
        ArgumentError: It has not.
    """
    cores = optional_whole("cores_per_worker", cores_per_worker)
    _check_enough(workers, cores or 0, len(usable_cores()))
    return cores


def _check_enough(workers: int, each: int, available: int) -> None:
    if workers * each > available:
        raise ArgumentError(
            "`cores_per_worker` times the workers of a machine must be at most its cores that can be used.",
            received=f"{workers} workers with {each} each, and {available} cores",
            fix="Leave `cores_per_worker` out, and the workers share the cores fairly.",
        )


def share_of(index: int, workers: int, cores_per_worker: int | None) -> dict[str, str]:
    """The environment variable that tells one of the workers on a machine its share of the cores."""
    return {_SHARE: f"{index} {workers} {cores_per_worker or 0}"}


def take_cores() -> list[int]:
    """Keep this worker to its share of the cores, with as many threads, before TensorFlow starts.

    Returns:
        The cores; all that can be used if nobody has shared them out.

    Raises:
        ArgumentError: This machine has not as many.
    """
    usable = usable_cores()
    if _SHARE not in os.environ:
        return usable
    index, workers, each = map(int, os.environ[_SHARE].split())
    _check_enough(workers, each, len(usable))
    each = each or max(1, len(usable) // workers)
    own = [usable[(index * each + core) % len(usable)] for core in range(each)]
    for name in _POOLS:
        os.environ.setdefault(name, str(len(own)))
    # Also the threads that R or a library has started already.
    with contextlib.suppress(OSError, AttributeError):  # not on macOS
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), own)
    return own


def usable_cores() -> list[int]:
    """The cores on which this process may run."""
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return list(range(os.cpu_count() or 1))

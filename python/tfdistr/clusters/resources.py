"""The cores of each worker.

Workers that share all cores slow each other down: each worker would start a thread for every core. The
launcher gives each worker a share of its machine's cores. The worker binds to its share before TensorFlow
starts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import check_optional_int
from tfdistr.utils.processes import usable_cores

_SHARE = "TFDISTR_CORES"
_BY_SLURM = "slurm"
_CPUS = Path("/sys/devices/system/cpu")
# TensorFlow's own variables for the threads within one operation, and for operations side by side.
_POOLS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def check_cores(workers: int, cores_per_worker: object) -> int | None:
    """Check ``cores_per_worker``, which is None for a fair share, against the cores of this machine."""
    cores = check_optional_int("cores_per_worker", cores_per_worker)
    _check_enough(workers, cores or 0, len(usable_cores()))
    return cores


def _check_enough(workers: int, each: int, available: int) -> None:
    if workers * each > available:
        raise ArgumentError(
            "`cores_per_worker` times the workers of a machine must be at most its usable cores.",
            received=f"{workers} workers with {each} each, and {available} cores",
            fix="Leave `cores_per_worker` out to share the cores fairly.",
        )


def share_of(
    index: int, workers: int, cores_per_worker: int | None, *, by_slurm: bool = False
) -> dict[str, str]:
    """Return the variable with the share of the cores of worker ``index`` of a machine."""
    return {_SHARE: f"{index} {workers} {cores_per_worker or 0}" + f" {_BY_SLURM}" * by_slurm}


def _is_bound(words: list[str], usable: int) -> bool:
    """Return whether Slurm has bound this worker to its own cores, so that it shares none."""
    cores = os.environ.get("SLURM_CPUS_ON_NODE", "")
    return words[3:] == [_BY_SLURM] and cores.isdecimal() and usable <= max(1, int(cores) // int(words[1]))


def neighbours_together(cores: Sequence[int], folder: Path = _CPUS) -> list[int]:
    """Sort cores: the threads of one core together, which Linux may count far apart, then the processors."""

    def place(core: int) -> tuple[int, int, int]:
        try:
            topology = folder / f"cpu{core}" / "topology"
            names = ("physical_package_id", "core_id")
            package, physical = (int((topology / name).read_text()) for name in names)
        except (OSError, ValueError):
            return 0, core, core
        return package, physical, core

    return sorted(cores, key=place)


def take_cores() -> list[int]:
    """Bind this worker to its share of the cores, with as many threads, before TensorFlow starts."""
    usable = neighbours_together(usable_cores())
    words = os.environ.get(_SHARE, "").split()
    if not words or _is_bound(words, len(usable)):
        return usable
    index, workers, each = map(int, words[:3])
    _check_enough(workers, each, len(usable))
    each = each or max(1, len(usable) // workers)
    own = [usable[(index * each + core) % len(usable)] for core in range(each)]
    for name in _POOLS:
        os.environ.setdefault(name, str(len(own)))
    # R or a library may have started threads already: bind them as well.
    with contextlib.suppress(OSError, AttributeError):  # not on macOS
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), own)
    return own

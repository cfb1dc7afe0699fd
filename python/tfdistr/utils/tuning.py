"""Settings that make TensorFlow fast on the processor of a process.

TensorFlow turns its oneDNN kernels off on x86 processors without AVX-512 VNNI, although they are faster
there. Without them, it also returns the memory of each step to the system, and requests it again in the next
step.
Libraries read most of these settings at load, so the launcher sets them for the workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from tfdistr.utils.warn import NOTE

log = logging.getLogger("tfdistr")

TUNING = "TFDISTR_TUNING"
"""The environment variable of a process whose settings are chosen: "1", or "0" for none."""
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
_GLIBC = "GLIBC_TUNABLES"
_ON, _OFF = ("1", "true"), ("0", "false")  # TensorFlow ignores other values
# Memory that glibc has allocated stays with the process: requests of up to 32 MiB (glibc accepts no larger
# threshold) come from its heap, and the heap shrinks only if this much of it is free.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = 32 << 20, 1 << 30
_THRESHOLDS = ((-3, _MMAP_THRESHOLD), (-1, _TRIM_THRESHOLD))  # numbers from <malloc.h>
_KEEP_MEMORY = f"glibc.malloc.mmap_threshold={_MMAP_THRESHOLD}:glibc.malloc.trim_threshold={_TRIM_THRESHOLD}"
_HUGE_PAGES = "glibc.malloc.hugetlb=1"
_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class _Memory:
    is_kept = False  # whether this process has set the thresholds itself


class _Kernels:
    are_chosen = False  # whether this process has set ONEDNN for itself


def tuned_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that tune a process; those that it already has take precedence."""
    if given.get(TUNING) in _OFF:
        return {TUNING: "0"}
    chosen = {TUNING: "1"}
    if _is_x86():
        chosen[ONEDNN] = "1"
    onednn = given.get(ONEDNN, chosen.get(ONEDNN, "")).lower() in _ON
    chosen[_GLIBC] = _HUGE_PAGES if onednn else f"{_HUGE_PAGES}:{_KEEP_MEMORY}"
    return {name: value for name, value in chosen.items() if name not in given}


def untuned_environment() -> dict[str, str]:
    """Return the environment variable of a process without tuning; it inherits no choice of this process."""
    if _Kernels.are_chosen:
        os.environ.pop(ONEDNN, None)
    return {TUNING: "0"}


def choose_kernels() -> None:
    """Choose TensorFlow's kernels for this process. TensorFlow reads the choice while it is loaded."""
    if _is_x86() and not {TUNING, ONEDNN} & os.environ.keys() and "tensorflow" not in sys.modules:
        os.environ[ONEDNN] = "1"
        _Kernels.are_chosen = True


def tune_this_process(*, exact: bool = False) -> None:
    """Tune this process with settings that still have an effect; ``exact`` asks for the same bits."""
    if TUNING in os.environ:
        return
    os.environ[TUNING] = "1"
    if not _Kernels.are_chosen and not has_onednn():
        _keep_memory()
        if _is_x86() and ONEDNN not in os.environ:
            _tell_what_is_missing(exact)


def _tell_what_is_missing(exact: bool) -> None:
    fix = f"Import tfdistr before tensorflow and keras, or set {ONEDNN}=1 before the program starts"
    if exact:
        log.warning(
            "This process has loaded TensorFlow without oneDNN. With virtual workers, its result differs in "
            "the last bits from that of processes with oneDNN, such as workers that tfdistr starts. %s.", fix
        )  # fmt: skip
    else:
        log.warning(
            "This process has loaded TensorFlow without oneDNN, which makes steps 2 to 5 times as long. %s.",
            fix, extra=NOTE,
        )  # fmt: skip


def describe_tuning() -> str:
    """Describe the kernels, the memory and the threads of this process, which has loaded TensorFlow."""
    parts = ["oneDNN" if has_onednn() else "no oneDNN"]
    value = os.environ.get(ONEDNN, "0")
    if value.lower() not in (*_ON, *_OFF):
        parts[0] += f" (TensorFlow ignores {ONEDNN}={value})"
    tunables = os.environ.get(_GLIBC, "")
    if "hugetlb=1" in tunables and _has_huge_pages():
        parts.append("huge pages")
    if "trim_threshold" in tunables or _Memory.is_kept:
        parts.append("memory kept")
    threads = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    if threads.isdecimal() and int(threads) > 0:
        parts.append(f"{threads} thread{'s' * (threads != '1')}")
    return ", ".join(parts)


def has_onednn() -> bool:
    """Return whether TensorFlow uses its oneDNN kernels in this process."""
    from tfdistr import tf_internals

    return tf_internals.onednn_is_on()


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def _has_huge_pages() -> bool:
    try:
        return "[never]" not in _THP.read_text()
    except OSError:  # not Linux
        return False


def _keep_memory() -> None:
    """Apply ``_KEEP_MEMORY`` in a running process."""
    if _GLIBC in os.environ or any(name.startswith("MALLOC_") for name in os.environ):
        return
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        mallopt = ctypes.CDLL(None).mallopt
        kept = [mallopt(*pair) for pair in _THRESHOLDS]
        _Memory.is_kept = all(kept)

"""The safety of a fork: the state that it shares with its parent must be at rest."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def threads() -> frozenset[str]:
    """Return the threads of this process. Threads that idle since the imports do not harm a fork."""
    return frozenset(os.listdir("/proc/self/task"))


def why_unsafe(known: frozenset[str]) -> str | None:
    """Return why this process must not be forked now; None if it may.

    Args:
        known: The threads that existed after the imports.
    """
    if "tensorflow" in sys.modules:
        from tfdistr import tf_internals

        if tf_internals.context_initialized():
            return "TensorFlow has set up its devices in the fork server"
    if _uses_gpu():
        return "the fork server uses a GPU, which a fork cannot"
    new = threads() - known
    if new:
        return f"{len(new)} thread{'s' * (len(new) > 1)} more than after the imports run in the fork server"
    return None


def _uses_gpu() -> bool:
    """Return whether CUDA was initialised: it then has NVIDIA's devices open."""
    for file in Path("/proc/self/fd").iterdir():
        try:
            if os.readlink(file).startswith("/dev/nvidia"):
                return True
        except OSError:  # the file of the listing itself
            continue
    return False
